/// A position in a text.
public struct Location: Sendable, Hashable, Comparable {
  /// The line, from 1.
  public let line: Int
  /// The column, from 1, in Unicode scalars.
  public let column: Int

  public init(line: Int, column: Int) {
    (self.line, self.column) = (line, column)
  }

  public static func < (a: Location, b: Location) -> Bool {
    (a.line, a.column) < (b.line, b.column)
  }
}

/// One node of a document: a scalar, a sequence or a mapping, and its location.
public struct Node: Sendable, Equatable {
  /// The content of a node.
  public enum Content: Sendable, Equatable {
    case scalar(Scalar)
    /// Nodes in the order of the text.
    case sequence([Node])
    /// Pairs in the order of the text. Each key occurs once.
    case mapping([Pair])
  }

  /// A key of a mapping and its value.
  public struct Pair: Sendable, Equatable {
    public let key: String
    /// Where the key starts.
    public let location: Location
    public let value: Node

    public init(key: String, location: Location, value: Node) {
      (self.key, self.location, self.value) = (key, location, value)
    }
  }

  public let content: Content
  /// Where the node starts.
  public let location: Location

  public init(_ content: Content, at location: Location) {
    (self.content, self.location) = (content, location)
  }

  /// The scalar; nil if the node is a sequence or mapping.
  public var scalar: Scalar? {
    if case .scalar(let scalar) = content { scalar } else { nil }
  }

  /// The nodes of a sequence; nil if the node is not a sequence.
  public var sequence: [Node]? {
    if case .sequence(let nodes) = content { nodes } else { nil }
  }

  /// The pairs of a mapping; nil if the node is not a mapping.
  public var mapping: [Pair]? {
    if case .mapping(let pairs) = content { pairs } else { nil }
  }

  /// The value of a key; nil if the node is not a mapping or lacks the key.
  public subscript(key: String) -> Node? {
    mapping?.first { $0.key == key }?.value
  }
}
