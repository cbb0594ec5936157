internal import API
internal import Engine
internal import Fetch
internal import Foundation
internal import HTTP
internal import Jobs
internal import Store

// Inside `Configuration`, the names `API` and `Fetch` mean sections of the configuration, not modules.
typealias RoutesConfiguration = API.APIConfiguration
private typealias RoutesToken = API.Token
private typealias RoutesScope = API.Scope
private typealias RoutesRateLimit = API.RateLimit

/// Translates the configuration into the settings of each module. No other file knows both.
extension Configuration {
  var engineConfiguration: JobEngine.Configuration {
    var engine = JobEngine.Configuration()
    engine.workers = jobs.workers
    engine.maxQueued = jobs.maxQueued
    engine.maxQueuedLines = jobs.maxQueuedLines
    engine.batchIdle = api.batchIdle
    engine.maxBatches = api.maxBatches
    engine.maxWaitingMessages = webhooks.maxWaiting
    engine.retention = jobs.retention
    engine.limitedOwners = Set(
      auth.all.lazy.filter { $0.maxBytesPerDay != nil }.map { Owner($0.name) })
    engine.idempotencyTTL = api.idempotencyTTL
    engine.retry.maxAttempts = jobs.maxAttempts
    engine.deliverTimeout = jobs.deliverTimeout
    engine.retry.initialBackoff = jobs.retryBackoff.initial
    engine.retry.maximumBackoff = jobs.retryBackoff.maximum
    engine.lease = cluster.lease
    engine.name = instanceName
    engine.version = App.version
    engine.timeout = fetch.timeout
    engine.maxBytes = fetch.maxBytes
    engine.limits = decodeLimits
    engine.renderingsAtOnce =
      decode.threads > 0 ? decode.threads : ProcessInfo.processInfo.activeProcessorCount
    engine.maxStoredBytes = storage.maxBytes
    engine.maxRecordBytes = storage.maxRecordBytes
    engine.maxPerOrigin = fetch.maxPerHost
    engine.requestsPerSecondPerOrigin = fetch.ratePerHost
    engine.cache.isEnabled = cache.enabled
    engine.cache.memory = cache.memory
    engine.cache.disk = cache.disk
    engine.cache.isShared = cache.shared
    engine.cache.defaultTTL = cache.defaultTTL
    engine.isConstrained = network.constrained
    engine.tracing = tracingRules
    return engine
  }

  /// Selects the jobs that are traced; nil if `tracing.endpoint` is not set.
  var tracingRules: TraceRules? {
    tracing.endpoint == nil
      ? nil : TraceRules(share: tracing.sample, isPassedOn: tracing.propagate)
  }

  /// `cluster.name`, or else the host name.
  var instanceName: String {
    if let name = cluster.name { return name }
    // Reduced to what `cluster.name` allows: at most 64 characters of visible ASCII.
    let visible = ProcessInfo.processInfo.hostName.utf8.filter { (0x21...0x7E).contains($0) }
    return String(decoding: visible.prefix(64), as: UTF8.self)
  }

  var decodeLimits: DecodeLimits {
    DecodeLimits(
      formats: Set(decode.formats),
      maxPixels: decode.maxPixels, maxDimension: decode.maxDimension, maxFrames: decode.maxFrames,
      maxScans: decode.maxScans, maxMemory: decode.maxMemory)
  }

  var fetcherConfiguration: CurlFetcher.Configuration {
    var fetcher = CurlFetcher.Configuration()
    fetcher.connectTimeout = fetch.connectTimeout
    fetcher.stallTimeout = fetch.stallTimeout
    fetcher.maxRedirects = fetch.maxRedirects
    fetcher.userAgent = fetch.userAgent
    fetcher.proxy = fetch.proxy
    fetcher.policy.allowSchemes = Set(fetch.allowSchemes.map(\.rawValue))
    fetcher.policy.allowNetworks = fetch.allowNetworks.compactMap { CIDR($0) }
    fetcher.policy.denyNetworks = fetch.denyNetworks.compactMap { CIDR($0) }
    fetcher.policy.allowHosts = fetch.allowHosts
    fetcher.policy.denyHosts = fetch.denyHosts
    fetcher.policy.allowPorts = Set(fetch.allowPorts)
    return fetcher
  }

  /// Addresses that webhook messages may be sent to. The allow lists are those of `webhooks`; the deny lists are the same
  /// as for origins.
  var webhookPolicy: AddressPolicy {
    var policy = fetcherConfiguration.policy
    policy.allowSchemes = webhooks.allowHTTP ? ["https", "http"] : ["https"]
    policy.allowNetworks = webhooks.allowNetworks.compactMap { CIDR($0) }
    policy.allowHosts = webhooks.allowHosts
    policy.allowPorts = Set(webhooks.allowPorts)
    return policy
  }

  var webhookRules: WebhookRules {
    var rules = WebhookRules()
    rules.schedule = WebhookSchedule(waits: webhooks.retry)
    rules.timeout = webhooks.timeout
    return rules
  }

  /// Returns the secrets that sign an owner's webhook messages: the owner's, or those of `webhooks` if it has none.
  var webhookSecrets: @Sendable (Owner) -> [WebhookSecret] {
    let usual = webhooks.secrets + webhooks.fileSecrets
    // Tokens with the same name belong to the same owner.
    let own = Dictionary(auth.all.map { (Owner($0.name), $0.webhookSecrets) }, uniquingKeysWith: +)
    return { owner in
      guard let secrets = own[owner], !secrets.isEmpty else { return usual }
      return secrets
    }
  }

  /// The dashboard's URL for a browser on this machine.
  func pageURL(port: Int) -> String {
    let scheme = server.tls.certificate == nil ? "http" : "https"
    let host = ["0.0.0.0", "::"].contains(server.host) ? "127.0.0.1" : server.host
    return "\(scheme)://\(host.contains(":") ? "[\(host)]" : host):\(port)/"
  }

  var routesConfiguration: RoutesConfiguration {
    var routes = RoutesConfiguration()
    routes.tokens =
      auth.disabled
      ? []
      : auth.all.compactMap { token in
        ImageDigest(bytes: token.sha256).map { digest in
          var known = RoutesToken(
            owner: Owner(token.name), digest: digest,
            scopes: Set(token.scopes.compactMap { RoutesScope(rawValue: $0.rawValue) }))
          known.limits = OwnerLimits(
            maxQueued: token.maxQueued, maxPriority: token.maxPriority,
            maxBytesPerDay: token.maxBytesPerDay)
          known.rateLimit = token.rate.map { RoutesRateLimit(requestsPerSecond: $0, burst: 0) }
          return known
        }
      }
    // Without tokens, requests must name this machine in `Host`, unless `auth.disabled` opens the service to everyone.
    if auth.all.isEmpty, !auth.disabled { routes.allowedHosts = [server.host.lowercased()] }
    let proxies = server.trustedProxies.compactMap { CIDR($0) }
    routes.isTrustedProxy = { text in
      guard let address = IPAddress(text)?.unmapped else { return false }
      return proxies.contains { $0.contains(address) }
    }
    routes.publicMetrics = auth.publicMetrics
    if auth.rateLimit.requestsPerSecond > 0 {
      routes.rateLimit = RoutesRateLimit(
        requestsPerSecond: auth.rateLimit.requestsPerSecond,
        burst: auth.rateLimit.burst > 0
          ? Double(auth.rateLimit.burst) : max(1, auth.rateLimit.requestsPerSecond))
    }
    routes.maxBatch = api.maxBatch
    routes.maxBatchLines = api.maxBatchLines
    routes.maxWait = api.maxWait
    routes.maxBody = server.maxBody
    routes.maxConnections = maxConnections
    routes.corsOrigins = server.corsOrigins
    routes.view.isEnabled = view.enabled
    routes.view.signatures = ViewSignature(keys: view.keys)
    routes.allowsPlainWebhooks = webhooks.allowHTTP
    for destination in destinations {
      routes.destinations[destination.name] = .some(
        destination.owners.map { Set($0.map(Owner.init)) })
    }
    routes.storesTraceContext = tracing.endpoint != nil
    routes.hasLocalRoot = sources.localRoot != nil
    routes.limits.timeout = fetch.timeout
    routes.limits.maxBytes = fetch.maxBytes
    routes.limits.maxPixels = decode.maxPixels
    routes.limits.maxDimension = decode.maxDimension
    routes.limits.maxRetention = jobs.maxRetention
    return routes
  }

  func serverConfiguration() throws(StartError) -> HTTPServer.Configuration {
    var http = HTTPServer.Configuration()
    http.host = server.host
    http.port = server.port
    http.threads = server.threads
    http.maxConnections = maxConnections
    http.requestTimeout = server.requestTimeout
    http.maxBody = server.maxBody
    http.probes.paths = Routes.probes
    http.takesStreams = Routes.acceptsStreamedBody
    if let certificate = server.tls.certificate, let key = server.tls.key {
      http.tls = (
        certificate: try Self.text(of: certificate, named: "server.tls.certificate"),
        key: try Self.text(of: key, named: "server.tls.key")
      )
    }
    return http
  }

  /// Checks that the credentials for `storage.images` are configured.
  ///
  /// - Throws: `.operatorMistake` if the environment lacks them and `storage.s3.credentials_file` is not set. A restart
  ///   does not help.
  func checkImageKeys() throws(StartError) {
    guard storage.images != nil, storage.s3.credentialsFile == nil else { return }
    let environment = ProcessInfo.processInfo.environment
    let missing = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].filter {
      environment[$0, default: ""].isEmpty
    }
    guard !missing.isEmpty else { return }
    let areSet = missing.count == 1 ? "is not set" : "are not set"
    throw .operatorMistake(
      "storage.images: \(missing.joined(separator: " and ")) \(areSet), "
        + "and storage.s3.credentials_file is not set either")
  }

  /// The maximum number of client connections, limited by the file descriptors that remain.
  ///
  /// Each worker needs four descriptors: a socket, two files and the channel to its decoder process. The stores, probes
  /// and threads need up to 128 more.
  var maxConnections: Int {
    SystemLimits.connections(
      limit: server.maxConnections, reserved: 128 + 4 * jobs.workers + idleDecoders)
  }

  private static func text(of path: String, named key: String) throws(StartError) -> String {
    do { return try String(contentsOfFile: path, encoding: .utf8) } catch {
      throw .operatorMistake("\(key): \"\(path)\" can't be read")
    }
  }
}
