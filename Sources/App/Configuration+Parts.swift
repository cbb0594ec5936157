internal import API
internal import Engine
internal import Fetch
internal import Foundation
internal import HTTP
internal import Jobs
internal import Store

// Within `Configuration` the modules' names are those of its sections.
typealias RoutesConfiguration = API.Configuration
private typealias RoutesToken = API.Token
private typealias RoutesScope = API.Scope
private typealias RoutesRateLimit = API.RateLimit

/// What each part is told of the configuration: the only place that knows both.
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

  /// Which jobs are traced; nil: none.
  var tracingRules: TraceRules? {
    tracing.endpoint == nil
      ? nil : TraceRules(share: tracing.sample, isPassedOn: tracing.propagate)
  }

  /// What people call this process.
  var instanceName: String {
    if let name = cluster.name { return name }
    // As much of it as a name may be, whatever the machine is called.
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

  /// Where messages may be sent: what is allowed is their own, what is denied is so to origins too.
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

  /// What an owner's messages are signed with.
  var webhookSecrets: @Sendable (Owner) -> [WebhookSecret] {
    let usual = webhooks.secrets + webhooks.fileSecrets
    // Two tokens of one name are one owner's.
    let own = Dictionary(auth.all.map { (Owner($0.name), $0.webhookSecrets) }, uniquingKeysWith: +)
    return { owner in
      guard let secrets = own[owner], !secrets.isEmpty else { return usual }
      return secrets
    }
  }

  /// Where a browser on this machine finds the dashboard of a service that listens on that port.
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
    // Without tokens only this machine is served, under its own names; said openly, under any.
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
    routes.maxConnections = connections
    routes.corsOrigins = server.corsOrigins
    routes.view.isEnabled = view.enabled
    routes.view.signatures = ViewSignature(keys: view.keys)
    routes.allowsPlainWebhooks = webhooks.allowHTTP
    for destination in destinations {
      routes.destinations[destination.name] = .some(
        destination.owners.map { Set($0.map(Owner.init)) })
    }
    routes.takesTraces = tracing.endpoint != nil
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
    http.maxConnections = connections
    http.requestTimeout = server.requestTimeout
    http.maxBody = server.maxBody
    http.probes.paths = Routes.probes
    http.takesStreams = Routes.takesStreams
    if let certificate = server.tls.certificate, let key = server.tls.key {
      http.tls = (
        certificate: try Self.text(of: certificate, named: "server.tls.certificate"),
        key: try Self.text(of: key, named: "server.tls.key")
      )
    }
    return http
  }

  /// - Throws: where the environment lacks what requests for images are signed by: no later start has it either.
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
        + "and storage.s3.credentials_file names no file in their place")
  }

  /// Of clients, at the most: a job takes a socket, two files and its decoder's channel, and the stores, probes and threads
  /// some more.
  var connections: Int {
    SystemLimits.connections(
      atMost: server.maxConnections, besides: 128 + 4 * jobs.workers + idleDecoders)
  }

  private static func text(of path: String, named key: String) throws(StartError) -> String {
    do { return try String(contentsOfFile: path, encoding: .utf8) } catch {
      throw .operatorMistake("\(key): \"\(path)\" can't be read")
    }
  }
}
