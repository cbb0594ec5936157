/// The client that sends a request.
package struct Caller: Sendable, Equatable {
  /// The owner whose jobs the caller sees.
  package let owner: Owner
  /// Whether the caller sees the jobs of all owners.
  package let isAdmin: Bool
  /// The limits of the caller's token.
  package let limits: OwnerLimits

  package init(owner: Owner, isAdmin: Bool, limits: OwnerLimits = OwnerLimits()) {
    (self.owner, self.isAdmin, self.limits) = (owner, isAdmin, limits)
  }

  /// Whether the job is visible to this caller.
  package func sees(_ job: Job) -> Bool { isAdmin || job.owner == owner }
}
