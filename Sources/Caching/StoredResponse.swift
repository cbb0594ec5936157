/// A header field, its name as received.
public struct Field: Sendable, Hashable, Codable {
  /// Compared without regard to case.
  public var name: String
  /// Without white space around it.
  public var value: String

  /// A field.
  public init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}

/// A response as the cache keeps it (RFC 9111 section 3).
public struct StoredResponse: Sendable, Equatable, Codable {
  /// Its header section, without what concerns one connection only.
  public var fields: [Field]
}
