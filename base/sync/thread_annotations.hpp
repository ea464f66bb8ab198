// Attributes of clang's thread safety analysis: which lock guards a member, and which locks a
// function needs, takes or gives up. `tests/lint/tidy.py` checks them; other compilers see nothing.
#pragma once

#ifdef __clang__
#define TPU_THREAD_ANNOTATION(text) __attribute__((text))
#else
#define TPU_THREAD_ANNOTATION(text)
#endif

/// A class that is a lock; its kind, for messages.
#define TPU_CAPABILITY(kind) TPU_THREAD_ANNOTATION(capability(kind))
/// A class that holds a lock for its lifetime.
#define TPU_SCOPED_CAPABILITY TPU_THREAD_ANNOTATION(scoped_lockable)
/// A member that is used with the lock held.
#define TPU_GUARDED_BY(lock) TPU_THREAD_ANNOTATION(guarded_by(lock))
/// A pointer to what is used with the lock held.
#define TPU_PT_GUARDED_BY(lock) TPU_THREAD_ANNOTATION(pt_guarded_by(lock))
/// A function that is called with the locks held.
#define TPU_REQUIRES(...) TPU_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
/// A function that is called without the locks, since it takes them itself.
#define TPU_EXCLUDES(...) TPU_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define TPU_ACQUIRE(...) TPU_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TPU_RELEASE(...) TPU_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
/// The first argument is the result that says that the lock was taken.
#define TPU_TRY_ACQUIRE(...) TPU_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
/// A function that is called with the lock held, which the analysis cannot see at the caller.
#define TPU_ASSERT_CAPABILITY(...) TPU_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))
/// A function whose body is not analyzed; the reason is next to it.
#define TPU_NO_THREAD_SAFETY_ANALYSIS TPU_THREAD_ANNOTATION(no_thread_safety_analysis)
