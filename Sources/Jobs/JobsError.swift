/// Why the engine did not do as asked.
public enum JobsError: Error, Sendable, Equatable {
  /// There is no such job for this caller.
  case unknownJob
  /// There is no such batch for this caller.
  case unknownBatch
  /// The batch takes no such lines: as it is.
  case batchGoesOnElsewhere(Batch)
  /// The queue would hold more than its capacity.
  case queueFull
  /// The records of jobs would have more bytes than they may, or the owner's more than its share.
  case recordsFull
  /// As many of the owner's batches are not over as may be.
  case tooManyBatches
  /// As many messages to the owner's receivers wait as may.
  case tooManyMessages
  /// The owner had as many bytes from origins today as its token lets it have; so long the day lasts.
  case bytesSpent(for: Duration)
  /// The same idempotency key came with another request.
  case keyReused
  /// These of the jobs name images out of the local root: their places in the request.
  case invalidLocalNames([Int])
  /// The job has another version than the client said.
  case versionDiffers
  /// The image's bytes are no longer kept.
  case imageGone
  /// As many variants wait to be rendered as may.
  case renderingsFull
  /// No variant can be made of the image, or not this one.
  case unrenderable(CodecError)
  /// The client that asked has left.
  case abandoned
  /// The service is still picking up what an earlier run left.
  case starting
  /// The service is stopping.
  case draining
  /// The store could not.
  case store(StoreError)
}
