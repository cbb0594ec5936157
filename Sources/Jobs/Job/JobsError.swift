/// Why the engine refused or failed a call.
package enum JobsError: Error, Sendable, Equatable {
  /// The job does not exist or is not visible to the caller.
  case unknownJob
  /// The batch does not exist or is not visible to the caller.
  case unknownBatch
  /// The batch does not accept these lines. The value is the batch as it is.
  case batchContinuesElsewhere(Batch)
  /// The queue is full.
  case queueFull
  /// The limit of stored job records is reached, or the owner's share of it.
  case recordsFull
  /// The owner has reached the limit of unfinished batches.
  case tooManyBatches
  /// The owner has reached the limit of waiting webhook messages.
  case tooManyMessages
  /// The owner has reached its token's daily limit of bytes from origins. The value is the rest of the day
  /// (UTC).
  case dailyBytesExceeded(for: Duration)
  /// An earlier request with other content used the idempotency key.
  case keyReused
  /// These jobs name files outside the local folder. The values are their positions in the request.
  case invalidLocalNames([Int])
  /// The job's version differs from the one in the request.
  case versionDiffers
  /// The image is no longer stored.
  case imageGone
  /// The queue of variants to render is full.
  case renderingsFull
  /// The variant cannot be made from the image.
  case unrenderable(CodecError)
  /// The client closed the connection.
  case abandoned
  /// The service is still starting.
  case starting
  /// The service is stopping.
  case draining
  /// The store failed.
  case store(StoreError)
}

extension JobsError: CustomStringConvertible {
  /// For the operator's log.
  package var description: String {
    switch self {
    case .unknownBatch: "the batch does not exist"
    case .batchContinuesElsewhere(let batch):
      "the batch is \(batch.state.rawValue) and has \(batch.received) lines"
    case .unknownJob: "the job does not exist"
    case .dailyBytesExceeded: "the owner has reached its daily limit of bytes"
    case .queueFull: "the queue is full"
    case .recordsFull: "the limit of job records is reached"
    case .tooManyBatches: "the owner has reached its limit of unfinished batches"
    case .tooManyMessages: "the owner has reached its limit of waiting webhook messages"
    case .keyReused: "another request has used the idempotency key"
    case .invalidLocalNames: "a path leads out of the folder of local images"
    case .versionDiffers: "the job has another version"
    case .imageGone: "the image is no longer stored"
    case .renderingsFull: "the queue of variants is full"
    case .unrenderable(let error): "the variant cannot be made: \(error.code.rawValue)"
    case .abandoned: "the client closed the connection"
    case .starting: "the service is starting"
    case .draining: "the service is stopping"
    case .store(let error): error.description
    }
  }
}
