// A record contains only the members that differ from an empty submission, or from the batch's defaults if
// the encoder and the decoder have them.

extension Submission: Codable {
  private enum CodingKeys: String, CodingKey {
    case source, alternatives, integrity, cacheKey, cacheMode, cacheTTL, headers, timeout, maxBytes
    case maxPixels, maxAttempts, retention, savesData, webhook, trace, variants, dropsOriginal
    case deliveries, hosts, allHosts
  }

  private static let empty = Submission(source: .local(""))

  /// Encodes a member that is nil as null if its default is not nil.
  package func encode(to encoder: any Encoder) throws {
    let base = (encoder.userInfo[.defaults] as? SharedDefaults)?.submission ?? Self.empty
    var members = encoder.container(keyedBy: CodingKeys.self)
    func encode<Value: Encodable & Equatable>(
      _ value: Value, _ usual: Value, _ key: CodingKeys
    ) throws {
      if value != usual { try members.encode(value, forKey: key) }
    }
    try members.encode(source, forKey: .source)
    try encode(alternatives, base.alternatives, .alternatives)
    try encode(integrity, base.integrity, .integrity)
    try encode(cacheKey, base.cacheKey, .cacheKey)
    try encode(cacheMode, base.cacheMode, .cacheMode)
    try encode(cacheTTL, base.cacheTTL, .cacheTTL)
    try encode(headers, base.headers, .headers)
    try encode(timeout, base.timeout, .timeout)
    try encode(maxBytes, base.maxBytes, .maxBytes)
    try encode(maxPixels, base.maxPixels, .maxPixels)
    try encode(maxAttempts, base.maxAttempts, .maxAttempts)
    try encode(retention, base.retention, .retention)
    try encode(savesData, base.savesData, .savesData)
    try encode(webhook, base.webhook, .webhook)
    try encode(trace, base.trace, .trace)
    try encode(variants, base.variants, .variants)
    try encode(dropsOriginal, base.dropsOriginal, .dropsOriginal)
    try encode(deliveries, base.deliveries, .deliveries)
    // The hosts of the source precede those of the alternatives, which all lines share.
    if hosts.suffix(base.hosts.count) == base.hosts[...] {
      try encode(Array(hosts.dropLast(base.hosts.count)), [], .hosts)
    } else {
      try members.encode(hosts, forKey: .allHosts)
    }
  }

  /// Decodes what ``encode(to:)`` wrote with the same defaults.
  package init(from decoder: any Decoder) throws {
    let defaults = decoder.userInfo[.defaults] as? SharedDefaults
    let base = defaults?.submission ?? Self.empty
    let members = try decoder.container(keyedBy: CodingKeys.self)
    func decode<Value: Decodable>(_ key: CodingKeys, _ usual: Value) throws -> Value {
      members.contains(key) ? try members.decode(Value.self, forKey: key) : usual
    }
    self.init(source: try members.decode(Source.self, forKey: .source))
    self.defaults = defaults
    alternatives = try decode(.alternatives, base.alternatives)
    integrity = try decode(.integrity, base.integrity)
    cacheKey = try decode(.cacheKey, base.cacheKey)
    cacheMode = try decode(.cacheMode, base.cacheMode)
    cacheTTL = try decode(.cacheTTL, base.cacheTTL)
    headers = try decode(.headers, base.headers)
    timeout = try decode(.timeout, base.timeout)
    maxBytes = try decode(.maxBytes, base.maxBytes)
    maxPixels = try decode(.maxPixels, base.maxPixels)
    maxAttempts = try decode(.maxAttempts, base.maxAttempts)
    retention = try decode(.retention, base.retention)
    savesData = try decode(.savesData, base.savesData)
    webhook = try decode(.webhook, base.webhook)
    trace = try decode(.trace, base.trace)
    variants = try decode(.variants, base.variants)
    dropsOriginal = try decode(.dropsOriginal, base.dropsOriginal)
    deliveries = try decode(.deliveries, base.deliveries)
    hosts = try decode(.allHosts, try decode(.hosts, []) + base.hosts)
  }
}
