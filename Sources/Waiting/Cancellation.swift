/// Runs an operation, and calls `onCancel` immediately if the task is cancelled during the operation.
///
/// Like `withTaskCancellationHandler`, but the operation stays on the caller's actor. The standard library is compiled
/// without SE-0461, so its function would cost two changes of thread per call.
package func withCancellation<Value>(
  isolation: isolated (any Actor)? = #isolation, _ operation: () async -> Value,
  onCancel: @Sendable () -> Void
) async -> Value {
  await withTaskCancellationHandler {
    _ = isolation  // a closure that captures it stays on the actor
    return await operation()
  } onCancel: {
    onCancel()
  }
}
