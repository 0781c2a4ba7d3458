# siafu in a container: the command, and the roles that it starts.
#
#   docker build -t siafu .                                     --build-arg EXTRAS=aws,data  adds extras
#   docker run --rm -v "$PWD:/work" siafu train digits          runs/ and shards/ are written to /work
#   docker run --rm --entrypoint python siafu -m graph_server --help     a role of its own

FROM python:3.12-slim-bookworm AS wheels
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG EXTRAS=""
# siafu's wheel and all that it needs: on arm pymetis is compiled as well.
RUN pip wheel --no-cache-dir --wheel-dir /wheels ".${EXTRAS:+[$EXTRAS]}"

FROM python:3.12-slim-bookworm
ARG EXTRAS=""
# In the versions that the first stage has chosen.
# hadolint ignore=DL3013
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "siafu${EXTRAS:+[$EXTRAS]}" \
    && useradd --create-home --uid 1000 siafu \
    && install -d -o siafu /work
USER 1000
WORKDIR /work
ENTRYPOINT ["siafu"]
CMD ["--help"]
