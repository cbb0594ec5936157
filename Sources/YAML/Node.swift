/// A position in a text.
package struct Location: Sendable, Hashable, Comparable {
  /// The line, from 1.
  package let line: Int
  /// The column, from 1, in Unicode scalars.
  package let column: Int

  package init(line: Int, column: Int) {
    (self.line, self.column) = (line, column)
  }

  package static func < (a: Location, b: Location) -> Bool {
    (a.line, a.column) < (b.line, b.column)
  }
}

/// One node of a document: a scalar, a sequence or a mapping, and its location.
package struct Node: Sendable, Equatable {
  /// The content of a node.
  package enum Content: Sendable, Equatable {
    case scalar(Scalar)
    /// Nodes in the order of the text.
    case sequence([Node])
    /// Pairs in the order of the text. Each key occurs once.
    case mapping([Pair])
  }

  /// A key of a mapping and its value.
  package struct Pair: Sendable, Equatable {
    package let key: String
    /// Where the key starts.
    package let location: Location
    package let value: Node
  }

  package let content: Content
  /// Where the node starts.
  package let location: Location

  package init(_ content: Content, at location: Location) {
    (self.content, self.location) = (content, location)
  }

  /// The scalar; nil if the node is a sequence or mapping.
  package var scalar: Scalar? {
    if case .scalar(let scalar) = content { scalar } else { nil }
  }

  /// The nodes of a sequence; nil if the node is not a sequence.
  package var sequence: [Node]? {
    if case .sequence(let nodes) = content { nodes } else { nil }
  }

  /// The pairs of a mapping; nil if the node is not a mapping.
  package var mapping: [Pair]? {
    if case .mapping(let pairs) = content { pairs } else { nil }
  }

  /// The value of a key; nil if the node is not a mapping or lacks the key.
  package subscript(key: String) -> Node? {
    mapping?.first { $0.key == key }?.value
  }
}
