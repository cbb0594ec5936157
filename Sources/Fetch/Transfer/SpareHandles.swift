internal import CCurl

/// libcurl's handles that no transfer needs at the moment: using one again spares its making. The loop's thread alone
/// touches them.
///
/// Nothing of a transfer is left in one: every option is as libcurl has it at first, and a session of TLS isn't kept at
/// all, so that an origin can't tell by it that two of its requests came from the same service.
final class SpareHandles {
  /// Of some 6 KB each.
  private static let capacity = 64

  private var handles: [UnsafeMutableRawPointer] = []

  deinit { for handle in handles { curl_easy_cleanup(handle) } }

  func take() -> UnsafeMutableRawPointer? { handles.popLast() ?? curl_easy_init() }

  /// - Parameter handle: one that no multi handle has any more.
  func giveBack(_ handle: UnsafeMutableRawPointer) {
    guard handles.count < Self.capacity else { return curl_easy_cleanup(handle) }
    // What is shared is the one thing that a reset leaves as it is.
    CCurl_setPointer(handle, CURLOPT_SHARE, nil)
    curl_easy_reset(handle)
    handles.append(handle)
  }
}
