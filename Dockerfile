# UNTESTED: the project's CI has no Docker, so this image is not built there. See docs/deploy.md.

FROM python:3.11-slim-bookworm AS build
RUN pip install --no-cache-dir uv==0.13.8
WORKDIR /opt/slotwise
ENV UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1
# What other people wrote is a layer of its own: it changes only with the lock.
COPY pyproject.toml uv.lock ./
RUN uv sync --locked --no-dev --no-install-project
COPY LICENSE README.md CHANGELOG.md ./
COPY app ./app
COPY examples/flights ./examples/flights
COPY migrations ./migrations
RUN uv sync --locked --no-dev --no-editable

FROM python:3.11-slim-bookworm
# Not pinned: Debian keeps only the newest security update of a version. tini reaps drivers that outlive the server's
# interest in them, and passes SIGTERM on.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /data slotwise
COPY --from=build /opt/slotwise/.venv /opt/slotwise/.venv
ENV PATH=/opt/slotwise/.venv/bin:$PATH
ENV SLOTWISE_DATA_DIR=/data/server
ENV SLOTWISE_LOG_FORMAT=json
USER slotwise
WORKDIR /data
VOLUME /data
EXPOSE 8081
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8081/health/ready', timeout=4)"]
ENTRYPOINT ["tini", "--", "slotwise"]
CMD ["serve"]
