# Both products in one image each, from one build:
#
#   docker build -t twinlog .                         twinlog: worker, reo, verify and so on; kafka-mirrors is in it, too
#   docker build -t kafka-reo --target kafka-reo .    kafka-reo: takes the same settings as the image of that name
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
WORKDIR /build
COPY pyproject.toml LICENSE ./
COPY src ./src
# A virtual environment without pip: nothing that installs goes into the last stage.
RUN python -m venv --without-pip /opt/twinlog \
    && python -m pip --python /opt/twinlog/bin/python install --no-cache-dir .

FROM ${PYTHON} AS runtime
RUN python -m pip uninstall --yes pip \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin twinlog
COPY --from=build /opt/twinlog /opt/twinlog
ENV PATH=/opt/twinlog/bin:${PATH} \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /
EXPOSE 9404
# Of what serves metrics at port 9404: `twinlog worker --http 0.0.0.0:9404`, and kafka-reo by itself.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9404/healthz', timeout=4)"]
STOPSIGNAL SIGTERM

FROM runtime AS kafka-reo
ENTRYPOINT ["kafka-reo", "--http", "0.0.0.0:9404"]

# The last stage is the one that is built where no other is asked for.
FROM runtime AS twinlog
ENTRYPOINT ["twinlog"]
