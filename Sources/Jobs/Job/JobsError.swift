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
