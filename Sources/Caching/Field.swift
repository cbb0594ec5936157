/// A header field, as a request or a response has it.
public struct Field: Sendable, Hashable, Codable {
  /// As received; names are compared without regard to case.
  public var name: String
  public var value: String

  public init(name: String, value: String) {
    self.name = name
    self.value = value
  }

  /// - Parameter name: in lower case.
  func isNamed(_ name: String) -> Bool {
    self.name.utf8.count == name.utf8.count && self.name.lowercased() == name
  }
}

extension [Field] {
  /// The values of the field's lines, in their order.
  /// - Parameter name: in lower case.
  func values(_ name: String) -> [String] {
    filter { $0.isNamed(name) }.map(\.value)
  }

  /// The value of the field's first line; nil where there is none.
  /// - Parameter name: in lower case.
  func first(_ name: String) -> String? {
    first { $0.isNamed(name) }?.value
  }

  /// The members of a list field over all its lines.
  /// - Parameter name: in lower case.
  func members(_ name: String) -> [Substring] {
    values(name).flatMap(FieldList.members)
  }
}
