internal import Synchronization

/// A capture over a staged image: hashed and written on threads that may wait for the disk.
final class StagedCapture: ImageCapture {
  let staged: any StagedImage
  private let executor: any TaskExecutor
  private let state = Mutex((bytes: 0, image: CapturedImage?.none))

  init(_ staged: any StagedImage, on executor: any TaskExecutor) {
    self.staged = staged
    self.executor = executor
  }

  /// Nil until finished.
  var image: CapturedImage? { state.withLock { $0.image } }

  func write(_ bytes: [UInt8]) async throws(JobsError) {
    let staged = staged
    let failure = await Task(executorPreference: executor) { () -> StoreError? in
      do throws(StoreError) { try staged.write(bytes) } catch { return error }
      return nil
    }.value
    if let failure { throw .store(failure) }
    state.withLock { $0.bytes += bytes.count }
  }

  func finish() async throws(JobsError) -> CapturedImage {
    let digest = staged.finish()
    return state.withLock { state in
      let image = CapturedImage(digest: digest, bytes: state.bytes)
      state.image = image
      return image
    }
  }
}
