/// The number of transfers that may begin now, by origin.
package struct OriginCapacity: Sendable, Equatable {
  /// The number for an origin that is not in ``exceptions``.
  package var usual: Int
  /// The numbers for origins that have transfers in progress, exceeded their rate, or are paused.
  package var exceptions: [String: Int]
  /// Limits over all instances that share the store; nil if there are none.
  package var overall: Overall?

  /// The limits of an origin over all instances, and this instance's transfers.
  package struct Overall: Sendable, Equatable {
    /// The limit of concurrent transfers to one origin.
    package var transfers: Int
    /// The limit of new requests per second to one origin; 0 means no limit.
    package var requestsPerSecond: Double
    /// This instance's transfers, by origin.
    package var own: [String: Int]

    package init(
      transfers: Int = .max, requestsPerSecond: Double = 0, own: [String: Int] = [:]
    ) {
      (self.transfers, self.requestsPerSecond, self.own) = (transfers, requestsPerSecond, own)
    }

    /// Returns how many more transfers may begin.
    /// - Parameter others: The number of other instances' transfers to the origin.
    package func capacity(at origin: String, besides others: Int) -> Int {
      transfers == .max ? .max : transfers - others - own[origin, default: 0]
    }
  }

  package init(usual: Int, exceptions: [String: Int] = [:], overall: Overall? = nil) {
    self.usual = usual
    self.exceptions = exceptions
    self.overall = overall
  }

  /// No limits.
  package static let unlimited = OriginCapacity(usual: .max)

  /// The number of transfers to this origin that may begin. Unlimited for a job without an origin.
  package subscript(origin: String?) -> Int {
    guard let origin else { return .max }
    return exceptions[origin] ?? usual
  }

  /// Counts one more transfer.
  package mutating func countTransfer(to origin: String?) {
    guard let origin else { return }
    let room = self[origin]
    // A paused origin has no limit, because its jobs send no request.
    guard room < .max else { return }
    exceptions[origin] = room - 1
    overall?.own[origin, default: 0] += 1
  }

  /// Returns how many transfers to the origin may begin, with regard to other instances' transfers and the
  /// rate.
  /// - Parameter mayRequest: Whether the rate over all instances allows a request now.
  package func remaining(at origin: String, besides others: Int, mayRequest: Bool) -> Int {
    let room = self[origin]
    guard let overall, room < .max else { return room }
    let left = min(room, overall.capacity(at: origin, besides: others))
    guard overall.requestsPerSecond > 0 else { return left }
    return mayRequest ? min(left, 1) : 0
  }
}
