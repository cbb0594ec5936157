/// Runs an operation, and `onCancel` as soon as the task is cancelled meanwhile.
///
/// As `withTaskCancellationHandler`, whose operation would leave the caller's actor: the standard library is compiled
/// without SE-0461, so each wait would cost two changes of thread.
public func withCancellation<Value>(
  isolation: isolated (any Actor)? = #isolation, _ operation: () async -> Value,
  onCancel: @Sendable () -> Void
) async -> Value {
  await withTaskCancellationHandler {
    _ = isolation  // whoever captures it stays on it
    return await operation()
  } onCancel: {
    onCancel()
  }
}
