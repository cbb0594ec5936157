/// The client that sends a request.
public struct Caller: Sendable, Equatable {
  /// The owner whose jobs the caller sees.
  public let owner: Owner
  /// Whether the caller sees the jobs of all owners.
  public let isAdmin: Bool
  /// The limits of the caller's token.
  public let limits: OwnerLimits

  public init(owner: Owner, isAdmin: Bool, limits: OwnerLimits = OwnerLimits()) {
    (self.owner, self.isAdmin, self.limits) = (owner, isAdmin, limits)
  }

  /// Whether the job is visible to this caller.
  public func sees(_ job: Job) -> Bool { isAdmin || job.owner == owner }
}
