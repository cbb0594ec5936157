internal import Jobs
internal import Logging
internal import Synchronization

/// Whether the disk is full, as far as anything new is concerned: a store refused something for want of room, or has little
/// more left than what it needs to remove things.
///
/// It ends once there is room for many images: a disk at its edge, where some writes succeed and others don't, doesn't make it
/// change to and fro.
final class StorageRoom: Sendable {
  private let images: any ImageStore
  private let records: any JobRecords
  private let onRoom: @Sendable () -> Void
  private let log: Logger
  private let isLacking = Mutex(false)

  /// - Parameter onRoom: called when the disk is no longer full.
  init(
    images: any ImageStore, records: any JobRecords, log: Logger,
    onRoom: @escaping @Sendable () -> Void = {}
  ) {
    (self.images, self.records) = (images, records)
    (self.log, self.onRoom) = (log, onRoom)
  }

  var isFull: Bool { isLacking.withLock { $0 } }

  /// - Throws: `.full` while nothing may be added.
  func check() throws(JobsError) { if isFull { throw .store(.full) } }

  /// Something could not be stored.
  func note(_ error: StoreError) {
    guard error == .full, set(true) else { return }
    log.error("the disk is full: nothing is accepted and no job begins until there is room")
  }

  /// Looks once a second; until cancelled.
  func watch() async {
    while !Task.isCancelled {
      await look()
      try? await Task.sleep(for: .seconds(1))
    }
  }

  func look() async {
    guard isFull else {
      // Before the first write fails: what is left is for what removes things.
      var isLow = await images.isLow()
      if !isLow { isLow = await records.isLow() }
      return isLow ? note(.full) : ()
    }
    // Both are asked: each may make room.
    let haveImages = await images.hasRoom()
    let haveRecords = await records.hasRoom()
    guard haveImages, haveRecords, set(false) else { return }
    log.notice("there is room on the disk again")
    onRoom()
  }

  /// - Returns: whether that is new.
  private func set(_ isFull: Bool) -> Bool {
    isLacking.withLock { lacking in
      defer { lacking = isFull }
      return lacking != isFull
    }
  }
}
