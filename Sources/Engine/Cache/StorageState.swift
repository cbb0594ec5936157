internal import Jobs
internal import Logging
internal import Synchronization

/// Tracks whether the disk is full: a store had no space for something, or little more is left than what deletions
/// need.
///
/// The disk counts as full until there is space for many images, so that the state does not flip back and forth while
/// some writes succeed.
final class StorageState: Sendable {
  private let images: any ImageStore
  private let records: any JobRecords
  private let onRoom: @Sendable () -> Void
  private let log: Logger
  private let full = Mutex(false)

  /// - Parameter onRoom: called when the disk is no longer full.
  init(
    images: any ImageStore, records: any JobRecords, log: Logger,
    onRoom: @escaping @Sendable () -> Void = {}
  ) {
    (self.images, self.records) = (images, records)
    (self.log, self.onRoom) = (log, onRoom)
  }

  var isFull: Bool { full.withLock { $0 } }

  /// - Throws: `.full` while the disk is full.
  func requireSpace() throws(JobsError) { if isFull { throw .store(.full) } }

  /// Records that something could not be stored.
  func recordFailure(_ error: StoreError) {
    guard error == .full, set(true) else { return }
    log.error("the disk is full, new jobs are refused and queued jobs wait until space is free")
  }

  /// Checks once a second until cancelled.
  func run() async {
    while !Task.isCancelled {
      await check()
      try? await Task.sleep(for: .seconds(1))
    }
  }

  func check() async {
    guard isFull else {
      // Checked before the first write fails, because the rest of the space is needed for deletions.
      var isLow = await images.isLow()
      if !isLow { isLow = await records.isLow() }
      return isLow ? recordFailure(.full) : ()
    }
    // Ask both, because the call itself may free space.
    let haveImages = await images.hasRoom()
    let haveRecords = await records.hasRoom()
    guard haveImages, haveRecords, set(false) else { return }
    log.notice("the disk has free space again, jobs are accepted")
    onRoom()
  }

  /// - Returns: whether the state changed.
  private func set(_ isFull: Bool) -> Bool {
    full.withLock { lacking in
      defer { lacking = isFull }
      return lacking != isFull
    }
  }
}
