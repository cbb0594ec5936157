internal import API
internal import Engine
internal import Fetch
internal import Foundation
internal import HTTP
internal import Images
internal import Jobs

/// Completes the settings of the modules with values that are not keys, or that depend on several keys.
extension Configuration {
  var engineConfiguration: JobEngine.Configuration {
    var engine = engine
    engine.limitedOwners = Set(
      auth.all.lazy.filter { $0.maxBytesPerDay != nil }.map { Owner($0.name) })
    engine.name = instanceName
    engine.version = App.version
    engine.renderingsAtOnce =
      decode.threads > 0 ? decode.threads : ProcessInfo.processInfo.activeProcessorCount
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

  /// Addresses that webhook messages may be sent to. The allow lists are those of `webhooks`; the deny lists are the same
  /// as for origins.
  var webhookPolicy: AddressPolicy {
    var policy = webhooks.receivers
    policy.allowSchemes = api.allowsPlainWebhooks ? ["https", "http"] : ["https"]
    policy.denyNetworks = fetcher.policy.denyNetworks
    policy.denyHosts = fetcher.policy.denyHosts
    return policy
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
    let host = ["0.0.0.0", "::"].contains(http.host) ? "127.0.0.1" : http.host
    return "\(scheme)://\(host.contains(":") ? "[\(host)]" : host):\(port)/"
  }

  var routesConfiguration: APIConfiguration {
    var routes = api
    routes.tokens =
      auth.disabled
      ? []
      : auth.all.compactMap { token in
        ImageDigest(bytes: token.sha256).map { digest in
          var known = API.Token(
            owner: Owner(token.name), digest: digest,
            scopes: token.scopes)
          known.limits = OwnerLimits(
            maxQueued: token.maxQueued, maxPriority: token.maxPriority,
            maxBytesPerDay: token.maxBytesPerDay)
          known.rateLimit = token.rate.map { API.RateLimit(requestsPerSecond: $0, burst: 0) }
          return known
        }
      }
    // Without tokens, requests must name this machine in `Host`, unless `auth.disabled` opens the service to everyone.
    if auth.all.isEmpty, !auth.disabled { routes.allowedHosts = [http.host.lowercased()] }
    let proxies = server.trustedProxies
    routes.isTrustedProxy = { text in
      guard let address = IPAddress(text)?.unmapped else { return false }
      return proxies.contains { $0.contains(address) }
    }
    if auth.rateLimit.requestsPerSecond > 0 {
      routes.rateLimit = API.RateLimit(
        requestsPerSecond: auth.rateLimit.requestsPerSecond,
        burst: Double(auth.rateLimit.burst))
    }
    routes.maxBody = http.maxBody
    routes.maxConnections = maxConnections
    routes.view.signatures = ViewSignature(keys: view.keys)
    for destination in destinations {
      routes.destinations[destination.name] = .some(
        destination.owners.map { Set($0.map(Owner.init)) })
    }
    routes.storesTraceContext = tracing.endpoint != nil
    routes.hasLocalRoot = sources.localRoot != nil
    routes.limits.timeout = engine.timeout
    routes.limits.maxBytes = engine.maxBytes
    routes.limits.maxPixels = engine.limits.maxPixels
    routes.limits.maxDimension = engine.limits.maxDimension
    return routes
  }

  func serverConfiguration() throws(StartError) -> HTTPServer.Configuration {
    var http = http
    http.maxConnections = maxConnections
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
      limit: http.maxConnections, reserved: 128 + 4 * engine.workers + idleDecoders)
  }

  private static func text(of path: String, named key: String) throws(StartError) -> String {
    do { return try String(contentsOfFile: path, encoding: .utf8) } catch {
      throw .operatorMistake("\(key): \"\(path)\" can't be read")
    }
  }
}
