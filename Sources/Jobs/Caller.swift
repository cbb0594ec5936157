/// Who asks.
public struct Caller: Sendable, Equatable {
  /// Whose jobs it sees.
  public let owner: Owner
  /// Whether it sees everyone's.
  public let isAdmin: Bool

  /// A caller.
  public init(owner: Owner, isAdmin: Bool) {
    self.owner = owner
    self.isAdmin = isAdmin
  }

  /// Whether the job exists for this caller.
  public func sees(_ job: Job) -> Bool { isAdmin || job.owner == owner }
}
