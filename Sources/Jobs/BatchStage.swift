/// Which batches there is still something to be done for, as a column of the stores tells: never another number.
package enum BatchStage: Int64, Sendable {
  case receiving = 0, running, finished, cancelled
  /// Cancelled, and there are jobs to be ended.
  case cancelling
  /// All of it is to be forgotten.
  case purged

  /// The batch's.
  package init(_ batch: Batch) {
    self = batch.isPurged ? .purged : batch.isCancelling ? .cancelling : .init(batch.state)
  }

  /// Of batches that stand there, if nothing is left to be ended.
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
