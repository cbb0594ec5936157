/// Where something stands in a text: both count from 1, columns in Unicode scalars.
public struct Location: Sendable, Hashable, Comparable {
  /// The line.
  public let line: Int
  /// The column.
  public let column: Int

  /// A place in a text.
  public init(line: Int, column: Int) {
    (self.line, self.column) = (line, column)
  }

  /// Whether one stands before the other.
  public static func < (a: Location, b: Location) -> Bool {
    (a.line, a.column) < (b.line, b.column)
  }
}

/// One node of a document: a scalar, a sequence or a mapping, and where it begins.
public struct Node: Sendable, Equatable {
  /// What a node holds.
  public enum Content: Sendable, Equatable {
    /// A text and how it was written.
    case scalar(Scalar)
    /// Nodes in their order.
    case sequence([Node])
    /// Pairs in their order; no key stands twice.
    case mapping([Pair])
  }

  /// A key of a mapping and its value.
  public struct Pair: Sendable, Equatable {
    /// The key's text.
    public let key: String
    /// Where the key begins.
    public let location: Location
    /// What stands behind it.
    public let value: Node

    /// A key and its value.
    public init(key: String, location: Location, value: Node) {
      (self.key, self.location, self.value) = (key, location, value)
    }
  }

  /// What it holds.
  public let content: Content
  /// Where it begins.
  public let location: Location

  /// A node that begins there.
  public init(_ content: Content, at location: Location) {
    (self.content, self.location) = (content, location)
  }

  /// Its text and style, of a scalar.
  public var scalar: Scalar? {
    if case .scalar(let scalar) = content { scalar } else { nil }
  }

  /// Its nodes, of a sequence.
  public var sequence: [Node]? {
    if case .sequence(let nodes) = content { nodes } else { nil }
  }

  /// Its pairs, of a mapping.
  public var mapping: [Pair]? {
    if case .mapping(let pairs) = content { pairs } else { nil }
  }

  /// The value of a key, of a mapping that has it.
  public subscript(key: String) -> Node? {
    mapping?.first { $0.key == key }?.value
  }
}
