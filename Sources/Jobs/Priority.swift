/// The priority of a job in the queue.
public enum Priority: Int, Sendable, CaseIterable, Comparable, Codable {
  case veryLow = 0
  case low, normal, high, veryHigh

  public static func < (a: Priority, b: Priority) -> Bool { a.rawValue < b.rawValue }
}
