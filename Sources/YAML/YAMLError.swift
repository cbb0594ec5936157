/// What is wrong with a text, and where.
public struct YAMLError: Error, Sendable, Equatable {
  /// What is wrong.
  public enum Reason: Sendable, Equatable {
    /// More bytes than are read.
    case tooLarge(limit: Int)
    /// Bytes that are not UTF-8.
    case invalidUTF8
    /// Not YAML; in libyaml's words.
    case syntax(String)
    /// Sequences and mappings within each other beyond the limit.
    case tooDeep(limit: Int)
    /// More nodes than are kept.
    case tooManyNodes(limit: Int)
    /// A second document in the stream.
    case severalDocuments
    /// A key that stands in its mapping already, first at that place.
    case duplicateKey(first: Location)
    /// A key that is a sequence or a mapping.
    case keyNotScalar
    /// `*name`: aliases are refused, since a few lines of them unfold to gigabytes.
    case alias(name: String)
    /// A tag that is not of YAML's core schema.
    case unknownTag(String)
    /// libyaml had no memory.
    case outOfMemory
  }

  /// What is wrong.
  public let reason: Reason
  /// Where.
  public let location: Location
  /// The keys (and indices, as `[2]`) from the root to the place; empty where that is not known.
  public let path: [String]

  /// Something wrong at a place.
  public init(_ reason: Reason, at location: Location, path: [String] = []) {
    (self.reason, self.location, self.path) = (reason, location, path)
  }
}

extension YAMLError.Reason: CustomStringConvertible {
  /// The reason for people, without the place.
  public var description: String {
    switch self {
    case .tooLarge(let limit): "is larger than \(limit) bytes"
    case .invalidUTF8: "is not UTF-8"
    case .syntax(let problem): problem
    case .tooDeep(let limit): "is nested more than \(limit) levels deep"
    case .tooManyNodes(let limit): "has more than \(limit) nodes"
    case .severalDocuments: "a second document begins here; one is read"
    case .duplicateKey(let first): "is given twice, first on line \(first.line)"
    case .keyNotScalar: "a key must be a plain text"
    case .alias(let name): "aliases (*\(name)) are not allowed"
    case .unknownTag(let tag): "the tag \(tag) is unknown"
    case .outOfMemory: "could not be read: no memory"
    }
  }
}

extension YAMLError: CustomStringConvertible {
  /// `line:column: path: reason`.
  public var description: String {
    let keys = path.joined(separator: ".").replacing(".[", with: "[")
    return "\(location.line):\(location.column): \(keys.isEmpty ? "" : keys + ": ")\(reason)"
  }
}
