internal import Engine
internal import Glibc
internal import Jobs
internal import Logging
internal import Settings
internal import Synchronization

/// Applies changes of the tokens and their limits while the service runs. All other keys require a restart.
final class Reloader: Sendable {
  private let read: @Sendable () throws(Configuration.Mistakes) -> Configuration
  private let running: Mutex<Configuration>
  private let parts: Parts
  private let log: Logger

  /// - Parameters:
  ///   - configuration: the configuration that the service runs with.
  ///   - read: reads the configuration again from the same sources.
  init(
    _ configuration: Configuration, of parts: Parts, log: Logger,
    read: @escaping @Sendable () throws(Configuration.Mistakes) -> Configuration
  ) {
    running = Mutex(configuration)
    (self.parts, self.log, self.read) = (parts, log, read)
  }

  /// Reads the configuration again and applies its tokens. If it has a mistake, nothing changes.
  func reload() {
    do throws(Configuration.Mistakes) {
      let next = try read()
      running.withLock { apply(next, to: &$0) }
    } catch {
      for mistake in error.all {
        log.error("failed to reload the configuration", metadata: ["mistake": "\(mistake)"])
      }
    }
  }

  private func apply(_ next: Configuration, to running: inout Configuration) {
    let before = running
    // Without tokens, every client on this machine is admitted. Changing between the two modes requires a restart.
    let opens = before.auth.all.isEmpty != next.auth.all.isEmpty
    if opens {
      log.error("tokens not reloaded: switching between no tokens and some requires a restart")
    } else if before.auth.all != next.auth.all {
      running.auth.tokens = next.auth.tokens
      running.auth.filedTokens = next.auth.filedTokens
      parts.replaceTokens(from: running)
      log.notice("tokens reloaded", metadata: ["tokens": "\(next.auth.all.count)"])
    }
    var others = Configuration.keys.filter {
      $0.path != "auth.tokens" && !$0.isEqual(before, next)
    }.map(\.path)
    if before.webhooks.fileSecrets != next.webhooks.fileSecrets {
      others.append("webhooks.secret_files")
    }
    guard !others.isEmpty else { return }
    let keys = others.joined(separator: ", ")
    log.warning("changed keys require a restart", metadata: ["keys": "\(keys)"])
  }

  /// Checks the token files every `interval` and reloads when one has changed, until the task is cancelled.
  func watch(every interval: Duration = .seconds(5)) async {
    // The first check always reloads, in case a file changed after the configuration was read at the start.
    var seen: [Stamp?] = []
    while (try? await Task.sleep(for: interval)) != nil {
      let now = stamps
      guard now != seen else { continue }
      // Set before the files are read, so that the next check notices a change during the read.
      seen = now
      reload()
    }
  }

  private struct Stamp: Equatable {
    let file: UInt
    let size: Int
    let (seconds, nanoseconds): (Int, Int)
  }

  private var stamps: [Stamp?] {
    let auth = running.withLock { $0.auth }
    return (auth.all.compactMap(\.file) + [auth.tokensFile].compactMap(\.self)).map { path in
      var status = stat()
      guard stat(path, &status) == 0 else { return nil }
      return Stamp(
        file: status.st_ino, size: status.st_size, seconds: status.st_mtim.tv_sec,
        nanoseconds: status.st_mtim.tv_nsec)
    }
  }
}

/// The webhook secrets of the current tokens.
final class CurrentTokens: Sendable {
  private let secrets: Mutex<@Sendable (Owner) -> [WebhookSecret]>

  init(_ configuration: Configuration) { secrets = Mutex(configuration.webhookSecrets) }

  func replace(from configuration: Configuration) {
    secrets.withLock { $0 = configuration.webhookSecrets }
  }

  /// Returns the rules with a function that looks up the current secrets whenever a message is sent.
  func rules(_ rules: WebhookRules) -> WebhookRules {
    var rules = rules
    rules.secrets = { [self] owner in secrets.withLock { $0 }(owner) }
    return rules
  }
}
