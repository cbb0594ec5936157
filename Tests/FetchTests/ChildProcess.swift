import Glibc

/// A program that a test needs beside it; killed with its owner.
///
/// Not Foundation's `Process`: that waits for an inherited descriptor to close, which another
/// test's long-lived child then holds open, and it hands on the blocked signals of the thread it is
/// called on.
final class ChildProcess: Sendable {
  private let id: pid_t

  struct SpawnError: Error {
    let code: Int32
  }

  /// - Parameter output: the file that its standard output is written to; its errors are dropped.
  init(_ arguments: [String], output: String = "/dev/null") throws {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
    defer { for word in words { free(word) } }
    var id = pid_t()
    let code = posix_spawn(&id, arguments[0], &actions, &attributes, &words, environ)
    guard code == 0 else { throw SpawnError(code: code) }
    self.id = id
  }

  deinit {
    kill(id, SIGKILL)
    waitpid(id, nil, 0)
  }

  /// Runs a short program to its end.
  static func run(_ arguments: [String]) throws {
    let child = try ChildProcess(arguments)
    var info = siginfo_t()
    // Left to be reaped by `deinit`, so that its number stays its own until then.
    waitid(P_PID, id_t(child.id), &info, WEXITED | WNOWAIT)
    guard info._sifields._sigchld.si_status == 0 else {
      throw SpawnError(code: info._sifields._sigchld.si_status)
    }
  }
}
