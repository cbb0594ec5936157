/// Why the engine did not do as asked.
public enum JobsError: Error, Sendable, Equatable {
  /// There is no such job for this caller.
  case unknownJob
  /// The queue would hold more than its capacity.
  case queueFull
  /// The same idempotency key came with another request.
  case keyReused
  /// The service is still picking up what an earlier run left.
  case starting
  /// The service is stopping.
  case draining
  /// The store could not.
  case store(StoreError)
}
