internal import Digests

/// What a client requested: the source of an image and the options. It never changes after submission.
package struct Submission: Sendable, Equatable {
  package var source: Source
  /// URLs that are tried in order after the URL before them failed.
  package var alternatives: [SourceURL] = []
  /// The required SHA-256 of the image's bytes.
  package var integrity: ImageDigest?
  /// Replaces the URL as the key for the cache and for shared loads.
  package var cacheKey: String?
  package var cacheMode: CacheMode = .default
  /// The freshness lifetime of a response that states none, in seconds.
  package var cacheTTL: Int?
  /// Additional request header fields, in the given order.
  package var headers: [HeaderField] = []
  /// The time limit of the transfer; nil means the configured one.
  package var timeout: Duration?
  /// The limit of the body in bytes; nil means the configured one.
  package var maxBytes: Int?
  /// The limit of the image's pixels (width × height); nil means the configured one.
  package var maxPixels: Int?
  /// The maximum number of tries after retryable errors; nil means the configured one.
  package var maxAttempts: Int?
  /// How long the finished job is kept; nil means the configured retention.
  package var retention: Duration?
  /// Whether the client asked for little data (`Save-Data: on`).
  package var savesData = false
  /// The receiver of webhook messages when the job ends.
  package var webhook: Webhook?
  /// The trace context of the client's request, if the request was traced.
  package var trace: TraceContext?
  /// The variants to make with the image: up to ``VariantRequest/most``, with different names.
  package var variants: [VariantRequest] = []
  /// Whether only the variants are stored, not the original. Requires at least one variant.
  package var dropsOriginal = false
  /// The deliveries to make before the job succeeds: up to ``DeliveryRequest/most``.
  package var deliveries: [DeliveryRequest] = []
  /// The canonical spelling of each host that was given in another spelling.
  package var hosts: [HostSpelling] = []

  /// The defaults of the batch; nil if the job belongs to no batch or the defaults are short. They only
  /// affect how a store encodes the submission, so comparisons ignore them.
  package var defaults: SharedDefaults? {
    get { sharing.defaults }
    set { sharing.defaults = newValue }
  }
  private var sharing = Sharing()

  /// A submission without options.
  package init(source: Source) { self.source = source }

  private struct Sharing: Sendable, Equatable {
    var defaults: SharedDefaults?
    static func == (_: Sharing, _: Sharing) -> Bool { true }
  }

  /// Whether the job may send requests.
  package var asksOrigin: Bool {
    guard case .url = source else { return false }
    return cacheMode != .onlyIfCached
  }
}

/// Two spellings of one host.
package struct HostSpelling: Sendable, Equatable, Codable {
  /// As the client sent it: ``SourceURL/host``.
  let given: String
  /// The canonical spelling.
  let one: String
}

/// The source of a job's image.
package enum Source: Sendable, Equatable, Codable {
  /// Fetched from the URL, or from `lowData` while the network is constrained.
  case url(SourceURL, lowData: SourceURL?)
  /// The name of a file in the configured local folder.
  case local(String)
  /// An uploaded image in the image store.
  case captured(ImageDigest, bytes: Int, contentType: String)
}

/// The cache modes of the Fetch standard (section 2.2.5).
package enum CacheMode: String, Sendable, CaseIterable, Initial {
  case `default`, reload
  case noStore = "no-store"
  case noCache = "no-cache"
  case forceCache = "force-cache"
  case onlyIfCached = "only-if-cached"

  /// The standard behavior of HTTP caches.
  package static let initial = CacheMode.default
}

/// A header field (RFC 9110 section 5), with name and value as given.
package struct HeaderField: Sendable, Equatable, Codable {
  /// A token.
  package var name: String
  /// Contains no line break and no NUL, and no white space at its ends.
  package var value: String

  /// Does not check the characters; the caller must.
  package init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}

/// The client that sends a request.
package struct Caller: Sendable, Equatable {
  /// The owner whose jobs the caller sees.
  package let owner: Owner
  /// Whether the caller sees the jobs of all owners.
  package let isAdmin: Bool
  /// The limits of the caller's token.
  package let limits: OwnerLimits

  package init(owner: Owner, isAdmin: Bool, limits: OwnerLimits = OwnerLimits()) {
    (self.owner, self.isAdmin, self.limits) = (owner, isAdmin, limits)
  }

  /// Whether the job is visible to this caller.
  package func sees(_ job: Job) -> Bool { isAdmin || job.owner == owner }
}

/// A value of an option.
protocol OptionValue: Codable, Equatable, Sendable {
  /// Bytes of its texts and arrays.
  var textBytes: Int { get }

  /// Whether both values consist of the same bytes. `==` treats different Unicode encodings of a text as equal.
  func isIdentical(to other: Self) -> Bool
}

extension OptionValue {
  func isIdentical(to other: Self) -> Bool { self == other }
}

/// The member of ``Submission`` that stores an option's value, with operations that hide the value's type.
struct SubmissionMember: Sendable {
  /// Encodes the value if it differs from that of the defaults. Encodes nil as null if the default is not nil.
  let encode:
    @Sendable (
      Submission, _ defaults: Submission, inout KeyedEncodingContainer<Submission.Key>, JobOption
    ) throws -> Void
  /// Decodes what ``encode`` wrote.
  let decode:
    @Sendable (inout Submission, KeyedDecodingContainer<Submission.Key>, JobOption) throws -> Void
  /// Returns the bytes of texts and arrays that differ from the defaults.
  let textBytes: @Sendable (Submission, _ defaults: Submission?) -> Int
  /// Returns the value as a text; nil if it is the same as in an empty submission.
  let text: @Sendable (Submission) -> String?

  init<Value: OptionValue>(_ path: any WritableKeyPath<Submission, Value> & Sendable) {
    encode = { submission, defaults, members, option in
      let value = submission[keyPath: path]
      if !value.isIdentical(to: defaults[keyPath: path]) {
        try members.encode(value, forKey: .init(option))
      }
    }
    decode = { submission, members, option in
      submission[keyPath: path] = try members.decode(Value.self, forKey: .init(option))
    }
    textBytes = { submission, defaults in
      let value = submission[keyPath: path]
      return value == defaults?[keyPath: path] ? 0 : value.textBytes
    }
    text = { submission in
      let value = submission[keyPath: path]
      return value == Submission.empty[keyPath: path] ? nil : "\(value)"
    }
  }
}

extension Submission {
  /// A submission without options. Its source is unused.
  static let empty = Submission(source: .local(""))

  /// The names and values of the options that equal jobs have in common, in addition to the resource.
  var loadParts: [String] { parts(JobOption.ofLoads) }

  /// The names and values of the options that equal views have in common.
  package var viewParts: [String] { parts(JobOption.ofViews) }

  private func parts(_ members: [JobOption.Member]) -> [String] {
    members.flatMap { option, member in member.text(self).map { [option.rawValue, $0] } ?? [] }
  }
}

// A record contains only the members that differ from an empty submission, or from the batch's defaults if
// the encoder and the decoder have them.

extension Submission: Codable {
  /// The name of a member in a record. That of an option is its name in the API.
  struct Key: CodingKey {
    let stringValue: String
    var intValue: Int? { nil }

    init(_ option: JobOption) { self.init(stringValue: option.rawValue) }
    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }

    static let source = Key(stringValue: "source")
    static let savesData = Key(stringValue: "savesData")
    static let trace = Key(stringValue: "trace")
    static let hosts = Key(stringValue: "hosts")
    static let allHosts = Key(stringValue: "allHosts")
  }

  /// Encodes nothing in a job that is stored apart from its submission (``StoredJSON/Context/submission``).
  package func encode(to encoder: any Encoder) throws {
    if encoder.userInfo[.submission] != nil {
      _ = encoder.container(keyedBy: Key.self)
      return
    }
    let base = (encoder.userInfo[.defaults] as? SharedDefaults)?.submission ?? Self.empty
    var members = encoder.container(keyedBy: Key.self)
    try members.encode(source, forKey: .source)
    for (option, member) in JobOption.members { try member.encode(self, base, &members, option) }
    if savesData != base.savesData { try members.encode(savesData, forKey: .savesData) }
    if trace != base.trace { try members.encode(trace, forKey: .trace) }
    // The hosts of the source precede those of the alternatives, which all lines share.
    let ownHosts = hosts.dropLast(base.hosts.count)
    if hosts.suffix(base.hosts.count) != base.hosts[...] {
      try members.encode(hosts, forKey: .allHosts)
    } else if !ownHosts.isEmpty {
      try members.encode(Array(ownHosts), forKey: .hosts)
    }
  }

  /// Decodes what ``encode(to:)`` wrote with the same defaults.
  package init(from decoder: any Decoder) throws {
    if let known = decoder.userInfo[.submission] as? Submission {
      self = known
      return
    }
    let defaults = decoder.userInfo[.defaults] as? SharedDefaults
    self = defaults?.submission ?? Self.empty
    self.defaults = defaults
    let members = try decoder.container(keyedBy: Key.self)
    source = try members.decode(Source.self, forKey: .source)
    for (option, member) in JobOption.members where members.contains(Key(option)) {
      try member.decode(&self, members, option)
    }
    if members.contains(.savesData) {
      savesData = try members.decode(Bool.self, forKey: .savesData)
    }
    if members.contains(.trace) { trace = try members.decode(TraceContext?.self, forKey: .trace) }
    if members.contains(.allHosts) {
      hosts = try members.decode([HostSpelling].self, forKey: .allHosts)
    } else if members.contains(.hosts) {
      hosts = try members.decode([HostSpelling].self, forKey: .hosts) + hosts
    }
  }
}

/// A member that is left out of its record while it has its initial value. Most jobs of a long batch have
/// nothing but a URL.
@propertyWrapper
package struct Sparse<Value: Initial>: Equatable, Codable {
  package var wrappedValue: Value

  package init(wrappedValue: Value) { self.wrappedValue = wrappedValue }

  /// Decodes the plain value, as of a member that is always present.
  package init(from decoder: any Decoder) throws { wrappedValue = try Value(from: decoder) }

  /// Encodes the plain value.
  package func encode(to encoder: any Encoder) throws { try wrappedValue.encode(to: encoder) }
}

extension Sparse: Sendable where Value: Sendable {}

/// A type with an initial value that need not be stored.
package protocol Initial: Equatable, Codable {
  /// The value of a member that is absent.
  static var initial: Self { get }
}

extension Array: Initial where Element: Equatable & Codable {
  package static var initial: Self { [] }
}

extension Bool: Initial {
  package static var initial: Self { false }
}

extension Int: Initial {
  package static var initial: Self { 0 }
}

// The synthesized `Codable` implementation calls these methods instead of the generic ones.
extension KeyedEncodingContainer {
  mutating func encode<Value>(_ member: Sparse<Value>, forKey key: Key) throws {
    guard member.wrappedValue != Value.initial else { return }
    try encode(member.wrappedValue, forKey: key)
  }
}

extension KeyedDecodingContainer {
  func decode<Value>(_ type: Sparse<Value>.Type, forKey key: Key) throws -> Sparse<Value> {
    Sparse(wrappedValue: try decodeIfPresent(Value.self, forKey: key) ?? Value.initial)
  }
}

/// The SHA-256 of a sequence of strings. Each string is preceded by its length, so different sequences have
/// different inputs.
package struct Fingerprint: Hash256 {
  package let bytes: [UInt8]

  package init?(bytes: some Sequence<UInt8>) {
    self.bytes = Array(bytes)
    guard self.bytes.count == 32 else { return nil }
  }

  /// 32 zero bytes.
  package static let none = Fingerprint(bytes: [UInt8](repeating: 0, count: 32))!

  /// The fingerprint of these parts. Their order matters.
  package init(of parts: [String]) {
    // One call of the hash function, because each update costs more than hashing a short part.
    var text: [UInt8] = []
    text.reserveCapacity(256)
    for part in parts {
      withUnsafeBytes(of: UInt64(part.utf8.count).littleEndian) { text.append(contentsOf: $0) }
      text.append(contentsOf: part.utf8)
    }
    bytes = SHA256.hash(data: text).withUnsafeBytes { Array($0) }
  }
}

/// Tags are compared byte by byte, as stores compare them. `==` compares characters, and so treats two
/// Unicode encodings of one character as equal.
extension [String] {
  /// Whether the array contains the tag.
  package func contains(tag: String) -> Bool { contains { $0.utf8.elementsEqual(tag.utf8) } }

  /// Whether both arrays hold the same tags in the same order.
  package func areSameTags(as others: [String]) -> Bool {
    elementsEqual(others) { $0.utf8.elementsEqual($1.utf8) }
  }
}
