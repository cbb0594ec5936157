/// Who asks.
public struct Caller: Sendable, Equatable {
  /// Whose jobs it sees.
  public let owner: Owner
  /// Whether it sees everyone's.
  public let isAdmin: Bool
  /// What it may have.
  public let limits: OwnerLimits

  /// A caller.
  public init(owner: Owner, isAdmin: Bool, limits: OwnerLimits = OwnerLimits()) {
    (self.owner, self.isAdmin, self.limits) = (owner, isAdmin, limits)
  }

  /// Whether the job exists for this caller.
  public func sees(_ job: Job) -> Bool { isAdmin || job.owner == owner }
}
