/// The priority of a job in the queue.
package enum Priority: Int, Sendable, CaseIterable, Comparable, Codable {
  case veryLow = 0
  case low, normal, high, veryHigh

  package static func < (a: Priority, b: Priority) -> Bool { a.rawValue < b.rawValue }
}
