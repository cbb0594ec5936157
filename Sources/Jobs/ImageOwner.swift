/// A job store, as a place that keeps its images knows it: what lies there is for one store to sweep.
public protocol ImageOwner: Sendable {
  /// Made with the store and the same at every start; a copy of the store has it too.
  func name() async throws(StoreError) -> String
}
