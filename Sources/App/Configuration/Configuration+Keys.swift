internal import Logging

extension Configuration {
  /// Every key, section by section. Files, environment variables, flags, printing and the documentation tests all use this
  /// table. The default of a key is the initial value of its property.
  package static let keys: [Key] =
    servingKeys + workingKeys + storageKeys + [
      Key("view.enabled", \.view.enabled, .boolean),
      Key("view.keys", \.view.keys, .list(.secretHex(16...1024))),
      Key("view.keys_file", \.view.keysFile, .optional(.file)),
      Key("cluster.name", \.cluster.name, .optional(.name)),
      Key("cluster.lease", \.cluster.lease, .duration(.seconds(1)...tenMinutes)),
      Key("network.constrained", \.network.constrained, .boolean),
      Key("log.level", \.log.level, .choice()),
      Key("log.format", \.log.format, .choice()),
      Key("tracing.endpoint", \.tracing.endpoint, .optional(.endpoint)),
      Key("tracing.sample", \.tracing.sample, .number(0...1)),
      Key("tracing.propagate", \.tracing.propagate, .boolean),
    ]

  private static let servingKeys: [Key] = [
    Key("server.host", \.server.host, .host),
    Key("server.port", \.server.port, .integer(0...65_535)),
    Key("server.threads", \.server.threads, .integer(0...1024)),
    Key("server.max_connections", \.server.maxConnections, .integer(1...1_000_000)),
    Key("server.request_timeout", \.server.requestTimeout, .duration(aMillisecond...anHour)),
    Key("server.max_body", \.server.maxBody, .size(1...(4 << 30))),
    Key("server.drain_timeout", \.server.drainTimeout, .duration(.zero...anHour)),
    Key("server.tls.certificate", \.server.tls.certificate, .optional(.file)),
    Key("server.tls.key", \.server.tls.key, .optional(.file)),
    Key("server.trusted_proxies", \.server.trustedProxies, .list(.network)),
    Key("server.cors_origins", \.server.corsOrigins, .list(.origin)),
    Key("auth.disabled", \.auth.disabled, .boolean),
    Key("auth.tokens", \.auth.tokens, .tokens),
    Key("auth.tokens_file", \.auth.tokensFile, .optional(.file)),
    Key("auth.public_metrics", \.auth.publicMetrics, .boolean),
    Key(
      "auth.rate_limit.requests_per_second", \.auth.rateLimit.requestsPerSecond,
      .number(0...1_000_000)),
    Key("auth.rate_limit.burst", \.auth.rateLimit.burst, .integer(0...1_000_000)),
    Key("api.max_batch", \.api.maxBatch, .integer(1...100_000)),
    Key("api.max_batch_lines", \.api.maxBatchLines, .integer(1...10_000_000)),
    Key("api.max_batches", \.api.maxBatches, .integer(1...1_000_000)),
    Key("api.batch_idle", \.api.batchIdle, .duration(aMillisecond...(aDay * 3650))),
    Key("api.max_wait", \.api.maxWait, .duration(aMillisecond...anHour)),
    Key("api.idempotency_ttl", \.api.idempotencyTTL, .duration(aMillisecond...(aDay * 3650))),
  ]

  private static let workingKeys: [Key] = [
    Key("jobs.workers", \.jobs.workers, .integer(1...10_000)),
    Key("jobs.max_queued", \.jobs.maxQueued, .integer(1...10_000_000)),
    Key("jobs.max_queued_lines", \.jobs.maxQueuedLines, .integer(1...100_000_000)),
    Key("jobs.retention", \.jobs.retention, .duration(aMillisecond...(aDay * 3650))),
    Key("jobs.max_retention", \.jobs.maxRetention, .duration(aMillisecond...(aDay * 365))),
    Key("jobs.max_attempts", \.jobs.maxAttempts, .integer(1...10)),
    Key("jobs.deliver_timeout", \.jobs.deliverTimeout, .duration(aMillisecond...aDay)),
    Key("jobs.retry_backoff.initial", \.jobs.retryBackoff.initial, .duration(aMillisecond...aDay)),
    Key("jobs.retry_backoff.maximum", \.jobs.retryBackoff.maximum, .duration(aMillisecond...aDay)),
    Key("fetch.connect_timeout", \.fetch.connectTimeout, .duration(aMillisecond...tenMinutes)),
    Key("fetch.timeout", \.fetch.timeout, .duration(aMillisecond...tenMinutes)),
    Key("fetch.stall_timeout", \.fetch.stallTimeout, .duration(aMillisecond...tenMinutes)),
    Key("fetch.max_bytes", \.fetch.maxBytes, .size(1...(4 << 30))),
    Key("fetch.max_redirects", \.fetch.maxRedirects, .integer(0...50)),
    Key("fetch.max_per_host", \.fetch.maxPerHost, .integer(1...10_000)),
    Key("fetch.rate_per_host", \.fetch.ratePerHost, .number(0...1_000_000)),
    Key("fetch.user_agent", \.fetch.userAgent, .userAgent),
    Key("fetch.proxy", \.fetch.proxy, .optional(.proxy)),
    Key("fetch.allow_schemes", \.fetch.allowSchemes, .list(.choice(), minimum: 1)),
    Key("fetch.allow_networks", \.fetch.allowNetworks, .list(.network)),
    Key("fetch.deny_networks", \.fetch.denyNetworks, .list(.network)),
    Key("fetch.allow_hosts", \.fetch.allowHosts, .list(.hostPattern)),
    Key("fetch.deny_hosts", \.fetch.denyHosts, .list(.hostPattern)),
    Key("fetch.allow_ports", \.fetch.allowPorts, .list(.integer(1...65_535))),
    Key("decode.isolation", \.decode.isolation, .choice()),
    Key("decode.processes", \.decode.processes, .integer(0...1024)),
    Key("decode.max_time", \.decode.maxTime, .duration(.seconds(1)...anHour)),
    Key("decode.formats", \.decode.formats, .list(.choice(), minimum: 1)),
    Key("decode.threads", \.decode.threads, .integer(0...1024)),
    Key("decode.max_pixels", \.decode.maxPixels, .integer(1...2_000_000_000)),
    Key("decode.max_dimension", \.decode.maxDimension, .integer(1...1_000_000)),
    Key("decode.max_frames", \.decode.maxFrames, .integer(1...100_000)),
    Key("decode.max_scans", \.decode.maxScans, .integer(1...10_000)),
    Key("decode.max_memory", \.decode.maxMemory, .size(1...(1 << 40))),
  ]

  private static let storageKeys: [Key] = [
    Key("cache.enabled", \.cache.enabled, .boolean),
    Key("cache.memory", \.cache.memory, .size(0...(1 << 40))),
    Key("cache.disk", \.cache.disk, .size(0...petabyte)),
    Key("cache.shared", \.cache.shared, .boolean),
    Key("cache.default_ttl", \.cache.defaultTTL, .duration(.zero...(aDay * 3650))),
    Key("webhooks.secrets", \.webhooks.secrets, .list(.webhookSecret)),
    Key("webhooks.secret_files", \.webhooks.secretFiles, .list(.file)),
    Key("webhooks.allow_http", \.webhooks.allowHTTP, .boolean),
    Key("webhooks.allow_networks", \.webhooks.allowNetworks, .list(.network)),
    Key("webhooks.allow_hosts", \.webhooks.allowHosts, .list(.hostPattern)),
    Key("webhooks.allow_ports", \.webhooks.allowPorts, .list(.integer(1...65_535))),
    Key("webhooks.max_waiting", \.webhooks.maxWaiting, .integer(1...10_000_000)),
    Key("webhooks.timeout", \.webhooks.timeout, .duration(aMillisecond...tenMinutes)),
    Key("webhooks.retry", \.webhooks.retry, .list(.duration(aMillisecond...(aDay * 30)))),
    Key("destinations", \.destinations, .destinations),
    Key("storage.path", \.storage.path, .newFolder),
    Key("storage.jobs", \.storage.jobs, .optional(.database, named: "sqlite")),
    Key("storage.jobs_password_file", \.storage.jobsPasswordFile, .optional(.file)),
    Key("storage.images", \.storage.images, .optional(.bucket, named: "files")),
    Key("storage.s3.endpoint", \.storage.s3.endpoint, .optional(.endpoint)),
    Key("storage.s3.region", \.storage.s3.region, .region),
    Key("storage.s3.path_style", \.storage.s3.isPathStyle, .boolean),
    Key("storage.s3.credentials_file", \.storage.s3.credentialsFile, .optional(.file)),
    Key("storage.local_cache", \.storage.localCache, .size(0...petabyte)),
    Key("storage.max_bytes", \.storage.maxBytes, .size(1...petabyte)),
    Key("storage.max_record_bytes", \.storage.maxRecordBytes, .size(1...petabyte)),
    Key("storage.reserve", \.storage.reserve, .size(0...petabyte)),
    Key("storage.partials", \.storage.partials, .size(0...petabyte)),
    Key("sources.local_root", \.sources.localRoot, .optional(.folder)),
    Key("placeholders.loading", \.placeholders.loading, .optional(.file)),
    Key("placeholders.failure", \.placeholders.failure, .optional(.file)),
  ]

  private static let aMillisecond: Duration = .milliseconds(1)
  private static let tenMinutes: Duration = .seconds(600)
  private static let anHour: Duration = .seconds(3600)
  private static let aDay: Duration = .seconds(86_400)
  private static let petabyte = 1_000_000_000_000_000
}
