/// How many more transfers may begin now, by origin.
public struct OriginRoom: Sendable, Equatable {
  /// To an origin that isn't among the exceptions.
  public var usual: Int
  /// Those with transfers under way, over their rate, or out of reach.
  public var exceptions: [String: Int]

  /// Room by origin.
  public init(usual: Int, exceptions: [String: Int] = [:]) {
    self.usual = usual
    self.exceptions = exceptions
  }

  /// No limits.
  public static let unlimited = OriginRoom(usual: .max)

  /// To this origin; a job that asks none is never held back.
  public subscript(origin: String?) -> Int {
    guard let origin else { return .max }
    return exceptions[origin] ?? usual
  }

  /// Notes that one more begins.
  public mutating func take(_ origin: String?) {
    guard let origin else { return }
    exceptions[origin] = self[origin] - 1
  }
}
