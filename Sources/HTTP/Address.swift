import Glibc

/// Socket addresses.
enum Address {
  /// The address as text, without its port; an IPv4 address within IPv6 as the former.
  static func text(_ address: UnsafePointer<sockaddr>) -> String {
    switch Int32(address.pointee.sa_family) {
    case AF_INET:
      return UnsafeRawPointer(address).loadUnaligned(as: sockaddr_in.self).sin_addr.text(AF_INET)
    case AF_INET6:
      let bytes = UnsafeRawPointer(address).loadUnaligned(as: sockaddr_in6.self).sin6_addr
      let text = bytes.text(AF_INET6)
      return text.hasPrefix("::ffff:") && text.contains(".") ? String(text.dropFirst(7)) : text
    default: return ""
    }
  }

  /// The port, in the host's byte order.
  static func port(_ address: sockaddr_storage) -> Int {
    withUnsafeBytes(of: address) { bytes in
      // Both families keep it in the same place.
      Int(UInt16(bigEndian: bytes.load(fromByteOffset: 2, as: UInt16.self)))
    }
  }
}

private protocol NetworkAddress {}
extension in_addr: NetworkAddress {}
extension in6_addr: NetworkAddress {}

extension NetworkAddress {
  fileprivate func text(_ family: Int32) -> String {
    withUnsafePointer(to: self) { address in
      withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(INET6_ADDRSTRLEN)) { buffer in
        guard let text = inet_ntop(family, address, buffer.baseAddress, socklen_t(buffer.count))
        else { return "" }
        return String(cString: text)
      }
    }
  }
}
