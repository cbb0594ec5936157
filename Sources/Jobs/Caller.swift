/// Who asks: whose jobs exist for them.
public struct Caller: Sendable, Equatable {
  /// Whose jobs are theirs.
  public let owner: Owner
  /// Everyone's jobs exist for an admin.
  public let isAdmin: Bool

  /// A caller.
  public init(owner: Owner, isAdmin: Bool) {
    self.owner = owner
    self.isAdmin = isAdmin
  }

  /// Whether the job exists for this caller.
  public func sees(_ job: Job) -> Bool { isAdmin || job.owner == owner }
}
