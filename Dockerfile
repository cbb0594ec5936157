# syntax=docker/dockerfile:1

# Both are Debian 12, so that the libraries linked are the libraries run.
ARG SWIFT_IMAGE=swift:6.3-bookworm
ARG RUNTIME_IMAGE=debian:12-slim

FROM ${SWIFT_IMAGE} AS build
# Security updates matter more here than the same versions each time.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends \
    libavif-dev libbrotli-dev libcurl4-openssl-dev libjpeg62-turbo-dev liblcms2-dev \
    libmicrohttpd-dev libpng-dev libpq-dev libsqlite3-dev libwebp-dev libyaml-dev pkg-config zlib1g-dev \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# The dependencies change seldom: a layer of their own.
COPY Package.swift ./
RUN swift package resolve
COPY openapi.yaml ./
COPY Sources Sources
# Neither is built, but the manifest names their folders.
COPY Tests Tests
COPY Benchmarks Benchmarks
RUN swift build -c release --product imagefetch --static-swift-stdlib \
  && strip -o /usr/local/bin/imagefetch .build/release/imagefetch

FROM ${RUNTIME_IMAGE}
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends \
    ca-certificates libavif15 libbrotli1 libcurl4 libjpeg62-turbo liblcms2-2 \
    libmicrohttpd12 libpng16-16 libpq5 libsqlite3-0 libstdc++6 libwebp7 libyaml-0-2 zlib1g \
  && rm -rf /var/lib/apt/lists/* \
  && install -d -o 10001 -g 10001 -m 0700 /var/lib/imagefetch
COPY LICENSE /usr/share/doc/imagefetch/LICENSE
COPY --from=build /usr/local/bin/imagefetch /usr/local/bin/imagefetch

# In a container loopback reaches nobody, so this listens on every address; and there the service
# refuses to start until it is given tokens (auth.tokens in a mounted file, see deploy/compose.yaml)
# or is openly told to have none: IMAGEFETCH_AUTH_DISABLED=true.
# MALLOC_ARENA_MAX: many threads' arenas would keep memory that no thread uses any more.
ENV IMAGEFETCH_SERVER_HOST=0.0.0.0 \
    IMAGEFETCH_SERVER_PORT=8080 \
    IMAGEFETCH_STORAGE_PATH=/var/lib/imagefetch \
    MALLOC_ARENA_MAX=2

# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /var/lib/imagefetch
# All that is written; the root file system may be read-only.
VOLUME /var/lib/imagefetch
EXPOSE 8080
STOPSIGNAL SIGTERM
# No shell and no curl: the service asks its own /livez.
HEALTHCHECK --interval=15s --timeout=3s --start-period=10s --retries=3 \
  CMD ["/usr/local/bin/imagefetch", "health"]
ENTRYPOINT ["/usr/local/bin/imagefetch"]
CMD ["serve"]

LABEL org.opencontainers.image.title="imagefetch" \
      org.opencontainers.image.description="Fetches images from untrusted URLs as durable jobs" \
      org.opencontainers.image.licenses="Apache-2.0"
