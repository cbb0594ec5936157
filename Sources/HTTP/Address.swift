import Glibc

/// Socket addresses.
enum Address {
  /// Returns the address without its port. An IPv4-mapped IPv6 address is returned as IPv4.
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

  /// Returns the port in host byte order.
  static func port(_ address: sockaddr_storage) -> Int {
    withUnsafeBytes(of: address) { bytes in
      // IPv4 and IPv6 addresses store the port at the same offset.
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
