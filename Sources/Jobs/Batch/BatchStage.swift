/// The value of a column that tells stores which batches need work. The numbers are stored and must not
/// change.
package enum BatchStage: Int64, Sendable {
  case receiving = 0, running, finished, cancelled
  /// Cancelled, with jobs that still have to be cancelled.
  case cancelling
  /// The batch and its jobs have to be deleted.
  case purged

  package init(_ batch: Batch) {
    self = batch.isPurged ? .purged : batch.isCancelling ? .cancelling : .init(batch.state)
  }

  /// The stage of a batch in `state` that is neither purged nor being cancelled.
  package init(_ state: Batch.State) {
    self =
      switch state {
      case .receiving: .receiving
      case .running: .running
      case .finished: .finished
      case .cancelled: .cancelled
      }
  }
}
