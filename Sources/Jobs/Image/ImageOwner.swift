/// A job store, as the image store sees it. Each image store belongs to one job store, whose instances delete
/// its unused images.
package protocol ImageOwner: Sendable {
  /// Returns the store's name. It is created with the store and never changes; a copy of the store has the
  /// same name.
  func name() async throws(StoreError) -> String
}
