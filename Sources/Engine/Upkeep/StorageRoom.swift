internal import Jobs
internal import Logging
internal import Synchronization

/// Whether the store refused something for want of room, until there is some again.
///
/// Nothing but such a refusal sets it, and nothing but room for many images clears it: a disk at its edge, where some
/// writes succeed and others don't, doesn't make it change to and fro.
final class StorageRoom: Sendable {
  private let images: any ImageStore
  private let log: Logger
  private let isLacking = Mutex(false)

  init(images: any ImageStore, log: Logger) {
    self.images = images
    self.log = log
  }

  var isFull: Bool { isLacking.withLock { $0 } }

  /// Something could not be stored.
  func note(_ error: StoreError) {
    guard error == .full, set(true) else { return }
    log.error("no room is left: until there is, this service says that it is not ready")
  }

  /// Looks once a second, while it lacks, whether there is room again; until cancelled.
  func watch() async {
    while !Task.isCancelled {
      await look()
      try? await Task.sleep(for: .seconds(1))
    }
  }

  func look() async {
    guard isFull, await images.hasRoom(), set(false) else { return }
    log.notice("there is room again")
  }

  /// - Returns: whether that is new.
  private func set(_ isFull: Bool) -> Bool {
    isLacking.withLock { lacking in
      defer { lacking = isFull }
      return lacking != isFull
    }
  }
}
