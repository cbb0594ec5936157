internal import Jobs
internal import Synchronization

/// An upload into a staged image. Its bytes are hashed and written on threads that may block on the disk.
final class StagedCapture: ImageCapture {
  let staged: any StagedImage
  private let executor: any TaskExecutor
  private let quota: UploadQuota
  private let owner: Owner
  private let state = Mutex((bytes: 0, image: CapturedImage?.none))

  init(
    _ staged: any StagedImage, on executor: any TaskExecutor, in room: UploadQuota, by owner: Owner
  ) {
    self.staged = staged
    self.executor = executor
    (self.quota, self.owner) = (room, owner)
  }

  /// Releases the upload's quota. An accepted upload is counted as a stored image by then.
  deinit { quota.release(bytes, of: owner) }

  /// Bytes received so far.
  var bytes: Int { state.withLock { $0.bytes } }

  /// Nil until finished.
  var image: CapturedImage? { state.withLock { $0.image } }

  func write(_ bytes: [UInt8]) async throws(JobsError) {
    do throws(StoreError) { try quota.reserve(bytes.count, for: owner) } catch {
      throw .store(error)
    }
    state.withLock { $0.bytes += bytes.count }
    let staged = staged
    let failure = await Task(executorPreference: executor) { () -> StoreError? in
      do throws(StoreError) { try staged.write(bytes) } catch { return error }
      return nil
    }.value
    if let failure { throw .store(failure) }
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
