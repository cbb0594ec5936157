import CInterleavings
import Jobs

/// The engine's threads: no real threads, but turns of the scheduler.
final class ScheduledThreads: ComputeThreads {
  private final class Lane: ComputeLane, TaskExecutor {
    func move(to priority: Priority) {}

    func enqueue(_ job: consuming ExecutorJob) {
      CInterleavings_enqueueTask(
        pointer(UnownedJob(job)),
        unsafeBitCast(asUnownedTaskExecutor(), to: CInterleavings_Executor.self))
    }
  }

  private final class SerialLane: ComputeLane, SerialExecutor {
    func move(to priority: Priority) {}

    func enqueue(_ job: consuming ExecutorJob) {
      CInterleavings_enqueueSerial(
        pointer(UnownedJob(job)),
        unsafeBitCast(asUnownedSerialExecutor(), to: CInterleavings_Executor.self))
    }
  }

  func lane(at priority: Priority) -> any TaskLane { Lane() }
  func workerLane(at priority: Priority) -> any WorkerLane { SerialLane() }
}

/// An UnownedJob consists of the runtime's pointer only.
private func pointer(_ job: UnownedJob) -> UnsafeMutableRawPointer {
  unsafeBitCast(job, to: UnsafeMutableRawPointer.self)
}
