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
