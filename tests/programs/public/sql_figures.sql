CREATE OR REPLACE TEMPORARY VIEW per_window AS
SELECT window, `class`, count(*) AS n, sum(amount) AS total
FROM orders
GROUP BY window(ordered, '10 seconds'), `class`;

-- A window over windows.
CREATE OR REPLACE TEMPORARY VIEW per_minute AS
WITH again AS (
  SELECT window(window_time(window), '1 minute') AS minute, sum(n) AS n, sum(total) AS total, max(n) AS busiest
  FROM per_window
  GROUP BY window(window_time(window), '1 minute')
)
SELECT minute.start AS start, n, total, busiest FROM again;

CREATE OR REPLACE TEMPORARY VIEW paid_orders AS
SELECT o.order_id, o.`class`, p.payment, CAST(unix_millis(p.paid) - unix_millis(o.ordered) AS INT) AS took_ms
FROM orders o
JOIN payments p
  ON o.order_id = p.paid_order AND p.paid BETWEEN o.ordered AND o.ordered + INTERVAL 30 SECONDS;
