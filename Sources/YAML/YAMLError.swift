/// A mistake in a YAML text, with its location.
package struct YAMLError: Error, Sendable, Equatable {
  /// The kind of mistake.
  package enum Reason: Sendable, Equatable {
    /// The text has more bytes than the limit.
    case tooLarge(limit: Int)
    /// The text contains bytes that are not UTF-8.
    case invalidUTF8
    /// The text is not YAML. Contains libyaml's message.
    case syntax(String)
    /// Sequences and mappings are nested deeper than the limit.
    case tooDeep(limit: Int)
    /// The document has more nodes than the limit.
    case tooManyNodes(limit: Int)
    /// The stream contains a second document.
    case severalDocuments
    /// The mapping already has this key, at the location `first`.
    case duplicateKey(first: Location)
    /// The key is a sequence or a mapping.
    case keyNotScalar
    /// `*name`. Aliases are refused, because a few lines with aliases can expand to gigabytes.
    case alias(name: String)
    /// The tag is not in YAML's core schema.
    case unknownTag(String)
    /// libyaml ran out of memory.
    case outOfMemory
  }

  package let reason: Reason
  package let location: Location
  /// The keys and indices (`[2]`) from the root to the mistake; empty if unknown.
  package let path: [String]

  package init(_ reason: Reason, at location: Location, path: [String] = []) {
    (self.reason, self.location, self.path) = (reason, location, path)
  }
}

extension YAMLError.Reason: CustomStringConvertible {
  /// The reason as text, without the location.
  package var description: String {
    switch self {
    case .tooLarge(let limit): "is larger than \(limit) bytes"
    case .invalidUTF8: "is not UTF-8"
    case .syntax(let problem): problem
    case .tooDeep(let limit): "is nested more than \(limit) levels deep"
    case .tooManyNodes(let limit): "has more than \(limit) nodes"
    case .severalDocuments: "a second document starts here; only one is allowed"
    case .duplicateKey(let first): "is given twice, first on line \(first.line)"
    case .keyNotScalar: "a key must be a scalar, not a list or mapping"
    case .alias(let name): "aliases (*\(name)) are not allowed"
    case .unknownTag(let tag): "the tag \(tag) is unknown"
    case .outOfMemory: "could not be read: out of memory"
    }
  }
}

extension YAMLError: CustomStringConvertible {
  /// The mistake as `line:column: path: reason`.
  package var description: String {
    let keys = path.joined(separator: ".").replacing(".[", with: "[")
    return "\(location.line):\(location.column): \(keys.isEmpty ? "" : keys + ": ")\(reason)"
  }
}
