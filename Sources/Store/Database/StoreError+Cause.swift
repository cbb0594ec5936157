internal import Foundation
internal import GRDB
internal import Glibc
internal import Jobs

extension StoreError {
  /// Converts an error of the layers below to the error that callers see.
  init(cause: any Error) {
    switch cause {
    case let error as StoreError: self = error
    case let error as DatabaseError where error.isDiskFull: self = .full
    case let error as CocoaError: self = .unavailable(detail: error.localizedDescription)
    default: self = .unavailable(detail: "\(cause)")
    }
  }

  /// Converts the error of a system call.
  /// - Parameters:
  ///   - code: `errno` right after the call.
  ///   - action: the attempted action, for the log.
  init(errno code: Int32, _ action: String) {
    switch code {
    case ENOSPC, EDQUOT: self = .full
    default: self = .unavailable(detail: "\(action): \(String(cString: strerror(code)))")
    }
  }
}

extension DatabaseError {
  /// SQLite reports ENOSPC as SQLITE_FULL, except for the shared memory file, which grows with the
  /// log.
  var isDiskFull: Bool {
    resultCode == .SQLITE_FULL || extendedResultCode == .SQLITE_IOERR_SHMSIZE
  }
}
