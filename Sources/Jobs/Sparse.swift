/// A member that its record has only where it is not what it is at first: most jobs of a long list have nothing but a URL.
@propertyWrapper
public struct Sparse<Value: Initial>: Equatable, Codable {
  /// The member's value.
  public var wrappedValue: Value

  /// A member of that value.
  public init(wrappedValue: Value) { self.wrappedValue = wrappedValue }

  /// Reads the value alone, as where it has always been there.
  public init(from decoder: any Decoder) throws { wrappedValue = try Value(from: decoder) }

  /// Writes the value alone.
  public func encode(to encoder: any Encoder) throws { try wrappedValue.encode(to: encoder) }
}

extension Sparse: Sendable where Value: Sendable {}

/// What a member that has its initial value need not be kept for.
public protocol Initial: Equatable, Codable {
  /// What it is where nobody said anything else.
  static var initial: Self { get }
}

extension Array: Initial where Element: Equatable & Codable {
  /// None.
  public static var initial: Self { [] }
}

extension Bool: Initial {
  /// No.
  public static var initial: Self { false }
}

extension Int: Initial {
  /// None.
  public static var initial: Self { 0 }
}

// What `Codable` makes of a type calls these in the place of the ones for any value.
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
