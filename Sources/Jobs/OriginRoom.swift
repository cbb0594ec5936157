/// How many more transfers may begin now, by origin.
public struct OriginRoom: Sendable, Equatable {
  /// To an origin that isn't among the exceptions.
  public var usual: Int
  /// Those with transfers under way, over their rate, or out of reach.
  public var exceptions: [String: Int]
  /// What holds over all instances that share the store; nil where there is no other.
  public var overall: Overall?

  /// What origins may be asked by all instances together, and what of that is under way here.
  public struct Overall: Sendable, Equatable {
    /// Transfers at once.
    public var transfers: Int
    /// New requests a second; 0 is no limit.
    public var requestsPerSecond: Double
    /// This instance's own transfers, by origin.
    public var own: [String: Int]

    /// Limits.
    public init(
      transfers: Int = .max, requestsPerSecond: Double = 0, own: [String: Int] = [:]
    ) {
      (self.transfers, self.requestsPerSecond, self.own) = (transfers, requestsPerSecond, own)
    }

    /// How many more may begin beside those of others. What begins now is not to count as a transfer where the origin
    /// is not asked.
    public func room(at origin: String, besides others: Int) -> Int {
      transfers == .max ? .max : transfers - others - own[origin, default: 0]
    }
  }

  /// Room by origin.
  public init(usual: Int, exceptions: [String: Int] = [:], overall: Overall? = nil) {
    self.usual = usual
    self.exceptions = exceptions
    self.overall = overall
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
    let room = self[origin]
    // One that may be asked without end is out of reach: no transfer begins.
    guard room < .max else { return }
    exceptions[origin] = room - 1
    overall?.own[origin, default: 0] += 1
  }

  /// What is left at an origin beside the transfers of others, and by its rate.
  /// - Parameter mayAsk: whether the rate, over all, allows a request now.
  public func left(at origin: String, besides others: Int, mayAsk: Bool) -> Int {
    let room = self[origin]
    guard let overall, room < .max else { return room }
    let left = min(room, overall.room(at: origin, besides: others))
    guard overall.requestsPerSecond > 0 else { return left }
    return mayAsk ? min(left, 1) : 0
  }
}
