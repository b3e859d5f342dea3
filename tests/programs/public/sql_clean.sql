-- What comes in, with names and types of its own; "class" is a word that is none.
CREATE OR REPLACE TEMPORARY VIEW orders AS
SELECT order_id, amount, ordered, concat('c', amount DIV 250) AS `class`
FROM raw_orders
WHERE amount IS NOT NULL;

CREATE OR REPLACE TEMPORARY VIEW payments AS
SELECT paid_order, payment, paid FROM raw_payments WHERE payment NOT LIKE '%-1';
